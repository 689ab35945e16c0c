"""The command `foldlog`: global options, the commands, and errors as exit codes.

Neither this module nor the head of a command's module imports anything heavy: `foldlog --help` must be fast.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .commands import (
    agents,
    approvals,
    archive,
    backup,
    console,
    costs,
    demo,
    diff,
    doctor,
    events,
    fork,
    jobs,
    keys,
    knowledge,
    lines,
    log,
    mcp,
    monitor,
    parity,
    plans,
    policy,
    preflight,
    projections,
    replay,
    rerun,
    retention,
    rollback,
    run,
    runs,
    schedules,
    schema,
    serve,
    sessions,
    simulate,
    telemetry,
    tokens,
    tools,
    top,
    worker,
    workers,
    workflows,
)
from .exits import INTERRUPTED, leave, report
from .settings import Settings

_FLAGS = {"--quiet", "-q", "--no-color"}
_VALUED = {"--server", "-s", "--namespace", "-n"}
_EPILOG = """\b
These options may come before or after a command. Data goes to stdout,
everything else to stderr.
\b
Exit codes: 0 ok; 1 the run failed or was cancelled, traces differ, or
something is not found; 2 usage or configuration; 3 no connection to the log;
4 timeout; 5 the run is paused (--no-wait); 130 interrupted (143 by SIGTERM).
\b
Environment: NATS_URL and NATS_CREDS for the log; OPENAI_* for the OpenAI SDK;
NO_COLOR and FORCE_COLOR; FOLDLOG_NAMESPACE, FOLDLOG_ROLE, FOLDLOG_HOME,
FOLDLOG_CONFIG, FOLDLOG_SCRIPT_DIR, FOLDLOG_LEASE_S, FOLDLOG_SYNC,
FOLDLOG_REPLICAS, FOLDLOG_COMPRESSION, FOLDLOG_KEEPER_IDLE_S,
FOLDLOG_PROJECTIONS, FOLDLOG_KNOWLEDGE, FOLDLOG_MCP_TOKENS,
FOLDLOG_PUBLIC_URL, FOLDLOG_SEAL, FOLDLOG_BUILD, FOLDLOG_DEBUG (tracebacks)."""


class Root(TyperGroup):
    """The root command: accepts global options anywhere, and turns errors into one line and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as the library does, after moving the global options to the front."""
        if "apply-patch" not in args:  # which prints a message of its own
            _check_text(args)
        return super().parse_args(ctx, hoisted(args, self))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit with its code."""
        try:
            code = super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except typer.TyperException as error:
            show = getattr(error, "show", None)
            code = error.exit_code
            if getattr(error, "option_name", None) and "No such option" in getattr(error, "message", ""):
                error.message += " (a name that begins with - goes after --)"
            if show is not None:
                show()
        except typer.Abort:
            code = INTERRUPTED
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - last chance to turn it into one line
            code = report(error)
        sys.exit(code or 0)


def _check_text(args: Sequence[str]) -> None:
    """Raise `ConfigError` for bytes that are not UTF-8: nothing can be stored or found under such a name."""
    for arg in args:
        try:
            arg.encode()
        except UnicodeEncodeError:
            from ...eventlog.errors import ConfigError

            raise ConfigError(f"the argument {arg!r:.80} is not text in UTF-8") from None


def hoisted(args: Sequence[str], command: Any = None) -> list[str]:
    """Return the arguments with the global options first; values of options, and all after `--`, keep their place.

    An option that the named command has itself, such as the `-n` of `schedules next`, is that command's.
    """
    front: list[str] = []
    root = command
    rest: list[str] = []
    left = list(args)
    while left:
        arg = left.pop(0)
        if arg == "--":
            return [*front, *rest, arg, *left]
        if arg in _FLAGS or arg.startswith(tuple(f"{name}=" for name in _VALUED)):
            front.append(arg)
        elif command is not root and _takes_value(command, arg):
            rest += [arg, *left[:1]]
            left = left[1:]
        elif arg in _VALUED:
            front += [arg, *left[:1]]
            if not left:  # the missing value is reported; the command's name must not be taken for it
                return front
            left = left[1:]
        elif _takes_value(command, arg):
            rest += [arg, *left[:1]]
            left = left[1:]
        else:
            rest.append(arg)
            command = getattr(command, "commands", {}).get(arg, command)
    return [*front, *rest]


def _takes_value(command: Any, arg: str) -> bool:
    """Return whether the next argument is the value of this one, an option of the command."""
    options = getattr(command, "params", ()) if arg.startswith("-") else ()
    return any(arg in option.opts and not getattr(option, "is_flag", False) for option in options)


app = typer.Typer(
    cls=Root,
    name="foldlog",
    no_args_is_help=True,
    rich_markup_mode=None,  # the plain help is three times as fast
    pretty_exceptions_enable=False,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"foldlog {version('foldlog')}")
        raise typer.Exit


@app.callback()
def settings(
    context: typer.Context,
    *,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            "-s",
            metavar="URL",
            help="URL of the log: nats://..., or memory:// for this process only. "
            "Default: NATS_URL, else the project's own server.",
        ),
    ] = None,
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", envvar="FOLDLOG_NAMESPACE", help="Namespace of the log."),
    ] = "default",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only errors and questions on stderr.")
    ] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Disable colours.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run LLM agents on an append-only log, in this process or on workers, and inspect their runs."""
    context.obj = Settings(server=server, namespace=namespace, quiet=quiet, color=not no_color)


app.command("run")(run.run)
app.command("worker")(worker.worker)
app.add_typer(workers.app, name="workers")
app.command("top")(top.top)
app.command("serve")(serve.serve)
app.command("console")(console.console)
app.add_typer(agents.app, name="agents")
app.add_typer(plans.app, name="plans")
app.add_typer(runs.app, name="runs")
app.add_typer(jobs.app, name="jobs")
app.command("costs")(costs.costs)
app.add_typer(projections.app, name="projections")
app.add_typer(workflows.app, name="workflows")
app.add_typer(schedules.app, name="schedules")
app.add_typer(sessions.app, name="sessions")
app.add_typer(archive.app, name="archive")
app.add_typer(retention.app, name="retention")
app.add_typer(approvals.app, name="approvals")
app.add_typer(policy.app, name="policy")
app.add_typer(knowledge.app, name="knowledge")
app.add_typer(log.app, name="log")
app.add_typer(backup.app, name="backup")
app.add_typer(keys.app, name="keys")
app.add_typer(mcp.app, name="mcp")
app.add_typer(lines.slots, name="slots")
app.add_typer(lines.lanes, name="lanes")
app.add_typer(lines.budgets, name="budgets")
app.command("doctor")(doctor.doctor)
app.command("preflight")(preflight.preflight)
app.add_typer(schema.app, name="schema")
app.add_typer(tokens.app, name="tokens")
app.add_typer(tools.app, name="tools")
app.add_typer(events.app, name="events")
app.command("diff")(diff.diff)
app.command("fork")(fork.fork)
app.command("rollback")(rollback.rollback)
app.command("monitor")(monitor.monitor)
app.command("replay")(replay.replay)
app.command("rerun")(rerun.rerun)
app.command("parity")(parity.parity)
app.command("simulate")(simulate.simulate)
app.command("telemetry")(telemetry.telemetry)
app.command("demo")(demo.demo)


def main() -> None:
    """Run the command `foldlog`: the entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # shown as ? by a terminal that lacks the character
    try:
        app(prog_name="foldlog")
    except SystemExit as ending:
        leave(ending.code)
        raise
