"""The HTTP API over runs, approvals and access, served by `foldlog serve --api` and `foldlog console`.

`routing.py` defines a route, and `table.py` is the table of all routes, from which role checks, the OpenAPI document
and the security tests are derived. Everything shown is read from the log or from projections of it, and every action
is an idempotent command in the log; so any number of servers may serve the same namespace.
"""

__all__: list[str] = []
