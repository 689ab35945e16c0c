"""`foldlog monitor`: check the ordering rules of a namespace as it grows, of a family, or of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import INTERRUPTED, NO, OK
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ....eventlog.losses import Audit
    from ....eventlog.ports import Log, Selector, Stored
    from ....replay import Violation, Watch
    from ..output.terminal import Screen


def monitor(
    context: typer.Context,
    what: Annotated[
        str | None, typer.Argument(metavar="RUN|FILE", help="A run's family, or a file; default: all runs.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All runs of the namespace (the default).")] = False,
    once: Annotated[bool, typer.Option("--once", help="Check the events stored so far, and exit.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one violation per line.")] = False,
) -> int:
    """Check that stored and new events follow the ordering rules.

    The rules are R1 to R11, R13 and P20. Prints a line for each violation, with the rule and both revisions. For all
    runs, first reports what the log has lost. Exit 1 (with --once, or for a file) if a rule is broken.
    """
    from ..loops import run_async
    from ..traces import is_file

    if every and what is not None:
        raise typer.BadParameter("give a RUN or a FILE, or --all, not both")
    settings = settings_of(context)
    if what is not None and is_file(what):
        return _of_file(settings, what, json=json)
    return run_async(_of_log(settings, what, once=once, json=json))


def _of_file(settings: Settings, name: str, *, json: bool) -> int:
    from ....eventlog.errors import LogCorrupted
    from ....replay import Violation, Watch
    from ..output.terminal import Screen
    from ..traces import read_file

    told, watch = _Told(Screen(settings), json=json), Watch()
    try:
        archive = read_file(name)
    except LogCorrupted as error:  # a violation of R11, not an error of the command
        told.tell([Violation("R11", str(error), error.run, (0, error.revision))])
        return told.end([watch])
    for stored in archive.stored:
        told.tell(watch.feed(stored))
    return told.end([watch])


async def _of_log(settings: Settings, run: str | None, *, once: bool, json: bool) -> int:
    from ....eventlog.losses import Audited
    from ....eventlog.ports import Shard
    from ....replay import Watch
    from ....replay.traces.trace import family_of
    from ..opening import opened, run_named
    from ..output.terminal import Screen

    told = _Told(Screen(settings), json=json)
    async with opened(settings) as runtime:
        log = runtime.log
        selectors: list[Selector] = [Shard(shard) for shard in range(log.events.shards)]
        if run is not None:
            namespace, subject = await runtime.place(await run_named(runtime, run))
            log, selectors = namespace.log, [family_of(subject)]
        watches = {selector: Watch() for selector in selectors}
        if run is None and isinstance(log, Audited):
            told.tell_losses(await log.audit())
        if once:
            for selector, watch in watches.items():
                async for stored in log.events.read(selector):
                    told.tell(watch.feed(stored))
            return told.end(list(watches.values()))
        return await _follow(log, watches, told)


async def _follow(log: Log, watches: dict[Selector, Watch], told: _Told) -> int:
    """Follow the streams until interrupted."""
    import asyncio

    from ..loops import interruption

    async def follow(selector: Selector, watch: Watch) -> None:
        async for stored in _closing(log.events.follow(selector)):
            told.tell(watch.feed(stored))

    tasks = [asyncio.create_task(follow(selector, watch)) for selector, watch in watches.items()]
    told.begin(len(tasks))
    with interruption() as stop:
        waiting = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (waiting, *tasks):
        task.cancel()
    await asyncio.gather(waiting, *tasks, return_exceptions=True)
    for task in done - {waiting}:
        task.result()
    told.end(list(watches.values()))
    return INTERRUPTED


async def _closing(commits: AsyncIterator[Stored]) -> AsyncIterator[Stored]:
    try:
        async for stored in commits:
            yield stored
    finally:
        close = getattr(commits, "aclose", None)
        if close is not None:
            await close()


class _Told:
    """Prints violations, and counts them."""

    def __init__(self, screen: Screen, *, json: bool) -> None:
        self._screen, self._json, self.count = screen, json, 0
        self._rules: set[str] = set()

    def begin(self, streams: int) -> None:
        self._screen.say((f"watching {streams} stream(s); Ctrl-C ends it", "dim"))

    def tell(self, found: list[Violation]) -> None:
        """Print a line for each violation, and after the first violation of a rule the rule's text."""
        from ....replay.ordering.rule_texts import explain
        from ..output.escaping import one_line

        for violation in found:
            self.count += 1
            if self._json:
                earlier, own = violation.revisions
                self._screen.json_line(
                    {
                        "rule": violation.rule,
                        "run": violation.run,
                        "message": violation.message,
                        "rule_text": explain(violation.rule),
                        "earlier_revision": earlier or None,
                        "revision": own,
                    }
                )
            else:
                self._screen.tell(
                    (f"{violation.rule:<4}", "bold red"), one_line(str(violation).partition(" ")[2])
                )
                if violation.rule not in self._rules:
                    self._rules.add(violation.rule)
                    self._screen.tell((f"     {explain(violation.rule)}", "dim"))

    def tell_losses(self, audit: Audit) -> None:
        """Print a line for each loss."""
        for line in audit.lines() if audit.losses else ():
            self.count += 1
            if self._json:
                self._screen.json_line({"rule": "loss", "message": line})
            else:
                self._screen.tell(("loss ", "bold red"), line)

    def end(self, watches: list[Watch]) -> int:
        """Print the summary, and return the exit code."""
        commits, events = sum(w.commits for w in watches), sum(w.events for w in watches)
        self._screen.say((f"{events} events in {commits} commits, {self.count} violation(s)", "dim"))
        return NO if self.count else OK
