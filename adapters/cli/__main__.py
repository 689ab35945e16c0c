"""`python -m foldlog.adapters.cli`, for environments where the command `foldlog` is not on the path."""

from .app import main

main()
