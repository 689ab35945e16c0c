"""The table of defects: read it, search for each in a few processes, and write it for the documentation."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from foldlog.replay.simulation import SCENARIOS

HERE = Path(__file__).resolve().parent
TABLE = HERE / "defects.toml"
DOCUMENT = HERE.parents[2] / "docs" / "maintainers" / "defects.md"
SEEDS = 40
"""Number of seeds, each in every scenario, within which each defect has to be found."""
NEIGHBOURS = 150
"""Number of further seeds of its scenario that are tried if the recorded one no longer finds it."""

Place = tuple[str, int]


class Change(msgspec.Struct, frozen=True):
    """Replaces `old`, which occurs once in the file, by `new`."""

    file: str
    old: str
    new: str


class Defect(msgspec.Struct, frozen=True):
    """A row. `scenario`, `seed` and `property` say what found it, `tried` is the number of schedules before."""

    name: str
    breaks: str
    change: tuple[Change, ...]
    scenario: str = ""
    seed: int = 0
    property: str = ""
    tried: int = 0


class Found(msgspec.Struct, frozen=True):
    """The result of a search. `problems` is empty if nothing was found; `error`: the change does not apply."""

    name: str
    tried: int = 0
    scenario: str = ""
    seed: int = 0
    problems: tuple[str, ...] = ()
    error: str = ""

    @property
    def properties(self) -> set[str]:
        return {problem.partition(" ")[0] for problem in self.problems}


def read() -> tuple[Defect, ...]:
    """The rows of the table."""
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8"))["defect"], tuple[Defect, ...])


def everywhere() -> list[Place]:
    """The scenarios in turn with one seed, then with the next."""
    return [(name, seed) for seed in range(SEEDS) for name in sorted(SCENARIOS)]


def nearby(defect: Defect) -> list[Place]:
    """The recorded seed, and then others of its scenario."""
    others = [seed for seed in range(NEIGHBOURS + 1) if seed != defect.seed]
    return [(defect.scenario, seed) for seed in (defect.seed, *others[:NEIGHBOURS])]


def hunted(
    hunts: Sequence[tuple[Defect, list[Place]]], directory: Path, *, processes: int = 2
) -> Iterator[Found]:
    """Hunt each defect in its places, in so many processes, each with a copy of the source below the directory."""
    parts = [hunts[number::processes] for number in range(processes)]
    with ThreadPoolExecutor(processes) as threads:
        every = [
            threads.submit(lambda number=number, part=part: list(_hunted(part, directory / str(number))))
            for number, part in enumerate(parts)
        ]
        for each in every:
            yield from each.result()


def _hunted(hunts: Iterable[tuple[Defect, list[Place]]], directory: Path) -> Iterator[Found]:
    asked = "".join(
        json.dumps({"name": d.name, "changes": msgspec.to_builtins(d.change), "places": places}) + "\n"
        for d, places in hunts
    )
    directory.mkdir()
    command = [sys.executable, str(HERE / "hunt.py"), str(directory)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        yield msgspec.convert(json.loads(line), Found)


# --- for the documentation --------------------------------------------------------------------------------------------


def document(defects: Iterable[Defect]) -> str:
    """The page of the documentation."""
    rows = [f"| `{d.name}` | {d.breaks} | `{d.scenario}`, {d.seed} | {d.property} |" for d in defects]
    return "\n".join([HEAD, *rows, "", TAIL])


HEAD = f"""# Defects that the simulation finds

A test is worth what it catches. Each row is a defect that was put into a copy of the runtime; the
[simulation](../how-to/simulate.md) found it within {SEEDS} seeds, at this scenario and seed, by this
[property](protocol.md#properties). The tests put each of them in again and play its schedule; the nightly
set searches {SEEDS} seeds of every scenario again. The changes themselves are in `tests/protocol/defects/defects.toml`.

| defect | what it does | scenario, seed | property |
| --- | --- | --- | --- |"""


TAIL = """`ALWAYS` marks a scenario that breaks without any fault.

## What cannot be found

Some lines can be changed without a visible difference in any schedule. They stay because the core has to be
right for every caller, also for one that this runtime does not have.

- *The result of an orphaned attempt is taken.* `returned` in `runtime/core/tool_calls.py` refuses the result of an
  unsafe call whose worker was declared dead. A call is orphaned by the claim of another epoch. The process that ran it
  did so for a driver of the epoch before: its append is refused by that claim, it reads the claim, and ends as fenced
  before it decides again. A process that claims again, even the same one, has a new driver, whose inbox the old attempt
  does not know. So no result of an orphan is ever decided: with a report of each, 2,000 schedules have reported none. A
  unit test covers the line.
- *Appends to one subject are sent in one batch.* `_next` in `eventlog/jetstream/appends.py` keeps them apart. The
  server refuses a batch in which a condition does not hold, and each append is then sent again by itself.
- *Of two answers with arguments the first counts.* `effective_arguments` in `runtime/core/approvals.py` takes the last.
  No call has two approvals whose answers may change its arguments.

## How much the tests catch

In two rounds, some sixty subtle defects each were derived from the code and from its promises, without knowledge of the
tests. Each was put into a copy of the source and run against the unit tests and the runtime tests of its subject, the
tables of the protocol, and a few hundred schedules.

| | defects | caught before | caught now |
| --- | ---: | ---: | ---: |
| first | 60 | 48 | most of the rest, not counted again |
| second | 61 | 31 | 59, and two that cannot be seen (above) |

The second round targeted the areas where the first had missed most. Before the tests were improved, they missed: in
epochs, leases and proofs 10 of 13, pieces of an answer 4 of 6, causes of wake-ups 3 of 5, tokens 3 of 3, pauses 1 of 4,
edited approvals 2 of 5, batches and families 3 of 7, questions 1 of 5, lanes 3 of 5, others none of 8. The runtime has
a second line of defence for most of the missed ones, so no schedule breaks anything: unit tests find these.
`tests/protocol/defects/unit_defects.toml` has them, each with its test. A scenario that was written for two of the
others found a defect that had not been seeded: the worker that ended a run looked for its open children in a read that
could be stale (`children-by-an-old-read`).
"""


def record(found: Iterable[Found]) -> None:
    """Record the findings in the table, and write the page again."""
    text = TABLE.read_text(encoding="utf-8")
    for each in found:
        if each.problems:
            text = _with_record(text, each)
    TABLE.write_text(text, encoding="utf-8")
    DOCUMENT.write_text(document(read()), encoding="utf-8")


def _with_record(text: str, found: Found) -> str:
    begin = text.index(f'name = "{found.name}"')
    end = text.index("[[defect.change]]", begin)
    kept = [
        line
        for line in text[begin:end].rstrip().splitlines()
        if line.partition(" = ")[0] not in {"scenario", "seed", "property", "tried"}
    ]
    facts: dict[str, Any] = {
        "scenario": json.dumps(found.scenario),
        "seed": found.seed,
        "property": json.dumps(min(found.properties)),
        "tried": found.tried,
    }
    lines = [*kept, *[f"{name} = {value}" for name, value in facts.items()]]
    return text[:begin] + "\n".join(lines) + "\n\n" + text[end:]
