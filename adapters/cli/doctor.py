"""`foldlog doctor`"""

import typer


def doctor(context: typer.Context) -> int:
    """Check."""
    return 0
