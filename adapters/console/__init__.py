"""The HTTP API over runs, approvals and access, served by `foldlog serve --api` and `foldlog console`.

`routing.py` has what a route is, `table.py` the table of all routes, from which the checks of roles, the OpenAPI
document and the security tests are made. Everything shown is read from the log or from projections of it, and every
action is a command that the log takes once; so any number of servers may serve the same namespace.
"""

__all__: list[str] = []
