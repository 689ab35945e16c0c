"""The HTTP door: webhooks, signals and callbacks as an ASGI application, served by `foldlog serve` or mounted in yours.

`hooks_app(rt)` returns the application. It keeps no durable state, so any number of processes may serve it.
"""

from .app import hooks_app

__all__ = ["hooks_app"]
