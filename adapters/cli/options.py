"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, one event per line.")]
Detailed = Annotated[bool, typer.Option("--detailed", help="Also show steps, usage and reasoning.")]
AgentPath = Annotated[
    str, typer.Argument(metavar="MODULE:AGENT", help="An agent, or a registry (with --agent NAME).")
]
AgentName = Annotated[str | None, typer.Option(metavar="NAME", help="Agent of a registry.")]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="PATH", help="File or HTTP address to send after the text. Repeatable."),
]
ScriptInput = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Input of the run; default: the script's own `input`.")
]
LogForm = Annotated[
    Literal["text", "json"],
    typer.Option("--log-format", envvar="FOLDLOG_LOG_FORMAT", help="Form of log lines on stderr."),
]
IgnoredUsage = Annotated[
    str | None,
    typer.Option(metavar="WHAT", help="cached-tokens or usage: counts of a real provider that vary."),
]
RunOrFile = Annotated[str | None, typer.Argument(metavar="RUN|FILE", help="A run or a file.")]
By = Annotated[str, typer.Option(metavar="NAME", help="Name to record; default: yours.")]
FromVersion = Annotated[
    int | None,
    typer.Option(
        "--from",
        metavar="N",
        min=0,
        help="Only if this is the last version, 0 for none yet; else another change was first.",
    ),
]
