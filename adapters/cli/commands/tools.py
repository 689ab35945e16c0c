"""`foldlog tools`: list the built-in tools, and apply patches from the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..exits import NO, OK, USAGE
from ..output.escaping import clean
from ..settings import settings_of

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List the built-in tools, or apply a patch."
)

_USAGE = "Usage: foldlog tools apply-patch 'PATCH'\n       echo 'PATCH' | foldlog tools apply-patch"
_WORKSPACE = typer.Option(
    "--workspace", metavar="DIRECTORY", help="Directory of the files; nothing outside is changed."
)


@app.command("list")
def list_tools(
    context: typer.Context,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, with schemas.")] = False,
) -> int:
    """List the built-in tools with their effects."""
    import msgspec

    from ...builtin import Workspace, builtin_tools
    from ...runners import DirectRunner
    from ..output.terminal import Screen

    here = Workspace(Path())
    screen = Screen(settings_of(context))
    specs = [each.spec for each in builtin_tools(here, runner=DirectRunner(here))]
    if json:
        screen.json([msgspec.to_builtins(spec) for spec in specs])
        return OK
    for spec in specs:
        screen.write(f"{spec.name:<12} {spec.effect:<11} {spec.description.splitlines()[0]}\n")
    return OK


@app.command("apply-patch")
def apply_patch(
    patch: Annotated[
        str | None, typer.Argument(metavar="PATCH", help="The patch; default: standard input.")
    ] = None,
    *,
    workspace: Annotated[Path, _WORKSPACE] = Path(),
) -> int:
    """Apply a patch in the language of Codex. Exit 1 if it does not apply; its earlier changes stay."""
    from ....runtime.ports.tools import ToolFailed
    from ...builtin.patch_language import PatchSyntaxError, parse
    from ...builtin.patching import apply
    from ...builtin.workspace import Workspace

    place = Workspace(workspace)
    try:
        text = _argument(patch) if patch is not None else _standard_input()
        if not text and patch is None:
            return _failed(_USAGE, USAGE)
        summary = apply(place, parse(text))
    except PatchSyntaxError as error:
        return _failed(error.terminal_message)
    except (ToolFailed, _Unreadable) as error:
        return _failed(str(error))
    sys.stdout.write(f"{clean(str(summary))}\n")
    return OK


class _Unreadable(Exception):
    """The patch is not text."""


def _argument(patch: str) -> str:
    try:
        patch.encode()
    except UnicodeEncodeError:
        raise _Unreadable("Error: apply_patch requires a UTF-8 PATCH argument.") from None
    return patch


def _standard_input() -> str:
    from ....eventlog.files import read_bounded

    try:
        return read_bounded("-").decode()
    except UnicodeDecodeError:
        raise _Unreadable(
            "Error: Failed to read PATCH from stdin.\nstream did not contain valid UTF-8"
        ) from None


def _failed(message: str, code: int = NO) -> int:
    sys.stderr.write(f"{clean(message)}\n")
    return code
