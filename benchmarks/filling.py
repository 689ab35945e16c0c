"""Fill a log with many runs quickly: publish the commits of a real run in bulk, renamed and chained for each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import nats
from foldlog.eventlog import names
from foldlog.eventlog.commits import Commit, decode, digest_of_bytes, encode
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.eventlog.ports import Subject

NAMESPACE = "default"
BETWEEN_ANSWERS = 500
"""One in this many messages is awaited, so that the server's bounded queue of pending messages never overflows."""
SAY_EVERY_RUNS = 1000


def renamed(template: Sequence[Commit], run: str, at: float | None = None) -> Iterator[bytes]:
    """Yield the commits of `template` as those of `run`, with a chain of their own. `at` replaces their times."""
    previous = ""
    for commit in template:
        when = commit.at if at is None else at
        data = encode(msgspec.structs.replace(commit, run=run, root=run, prev=previous, at=when))
        previous = digest_of_bytes(data)
        yield data


async def fill(
    url: str,
    runs: Sequence[tuple[str, Sequence[bytes]]],
    say: Callable[[str], None],
    at: float | None = None,
) -> list[Subject]:
    """Store runs in shard 0, each given by its id and the commits to copy; return their subjects."""
    layout, subjects, sent = Layout(NAMESPACE), list[Subject](), 0
    templates = {id(commits): [decode(data) for data in commits] for _, commits in runs}
    connection = await nats.connect(url)
    stream = connection.jetstream()
    for number, (run, commits) in enumerate(runs, start=1):
        subjects.append(names.run_subject(0, run, run))
        subject = layout.subject(subjects[-1]).decode()
        for data in renamed(templates[id(commits)], run, at):
            sent += 1
            if sent % BETWEEN_ANSWERS:
                await connection.publish(subject, data)
            else:
                await stream.publish(subject, data)
        if number % SAY_EVERY_RUNS == 0:
            say(f"{number:,} of {len(runs):,} runs are stored")
    await stream.account_info()
    await connection.close()
    return subjects
