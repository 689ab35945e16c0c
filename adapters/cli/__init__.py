"""The command line: `foldlog run`, `foldlog worker`, `foldlog runs ...` and the rest, one module for each noun."""

from .app import main

__all__ = ["main"]
