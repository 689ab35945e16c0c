"""Render the JSON files of a directory as a Markdown page with plots. Nothing in the page is written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .bounds import FOLDLOG
from .catalogue import PARTS, Part
from .figures import Series, Taken, kept, ratios
from .numbers import short
from .plots import Dot, dots, lines
from .targets import Verdict, judge

PAGE = "README.md"
BUSY = 4.0
"""The load before a part above which the machine is called busy: an idle machine is below it, even between parts."""
HEAD = """\
# Figures

Measured by `python -m benchmarks --into docs/maintainers/figures`, which writes the JSON files of this directory and
renders this page and its plots from them; [speed](../../speed.md) says what is measured and how to do it on another
machine. A figure is the median of the rounds, with the lowest and the highest of them; ratios are taken round by round,
within one run on one machine.
"""


def write(directory: Path) -> list[Path]:
    """Render the page and its plots into the directory; return the files written. Stale plots are removed."""
    directory.mkdir(parents=True, exist_ok=True)  # it does not exist if no part could be measured
    files = rendered(kept(directory))
    for stale in set(directory.glob("*.svg")) - {directory / name for name in files}:
        stale.unlink()
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return [directory / name for name in files]


def rendered(measured: Mapping[str, Taken]) -> dict[str, str]:
    """Return the page and its plots by file name. The same figures give the same files."""
    sections, files = [HEAD, _targets(judge(measured))], dict[str, str]()
    for part in PARTS:
        if part.name in measured:
            taken = measured[part.name]
            plots = {f"{part.name}-{_slug(m)}.svg": _plot(part, taken, m) for m in part.plots if taken.of(m)}
            sections.append("\n".join(_section(part, taken, list(plots))))
            files.update(plots)
    return {PAGE: "\n".join(sections), **files}


def _targets(verdicts: Sequence[Verdict]) -> str:
    rows = [
        (
            verdict.target.figure,
            verdict.target.wanted,
            "not measured"
            if verdict.middle is None
            else f"{short(verdict.middle)} {verdict.target.unit}".rstrip(),
            "" if verdict.middle is None else f"{short(verdict.low)} to {short(verdict.high)}",
            "" if verdict.met is None else ("yes" if verdict.met else "**no**"),
            verdict.target.peer,
        )
        for verdict in verdicts
    ]
    head = ("figure", "target", "measured", "from, to", "met", "best peer when the target was set")
    missed = [verdict.target for verdict in verdicts if verdict.met is False and verdict.target.why_not]
    reasons = [
        f"- **{'; '.join(target.figure for target in missed if target.why_not == reason)}**: {reason}"
        for reason in dict.fromkeys(target.why_not for target in missed)
    ]
    text = ["## Targets", "", *_table(head, rows)]
    return "\n".join(text + (["", "What was not reached, and why:", "", *reasons] if reasons else []) + [""])


def _section(part: Part, taken: Taken, plots: list[str]) -> Iterator[str]:
    yield from (f"## {part.title}", "", part.says, "")
    for plot in plots:
        yield from (f"![{plot.removesuffix('.svg').replace('-', ' ')}]({plot})", "")
    for measure in taken.measures():
        yield from (f"### {measure[0].upper()}{measure[1:]}", "")
        yield from _measure(part, taken, measure)
        yield ""
    if taken.remarks:
        yield from (*(f"- {remark}" for remark in taken.remarks), "")
    yield from (_circumstances(taken), "")


def _measure(part: Part, taken: Taken, measure: str) -> Iterator[str]:
    series, against = taken.of(measure), part.bases.get(measure, "")
    head = ["", "median", "from, to"]
    placed, set_up = any(s.x is not None for s in series), any(s.setting for s in series)
    noted = any(s.who in part.notes for s in series)
    head[1:1] = [part.x_unit] if placed else []
    compared = taken.find(measure, against) is not None
    head += [f"ratio to {against}"] if compared else []
    head += ["setting"] if set_up else []
    head += ["what was done about it"] if noted else []
    rows = []
    for each in series:
        row = [f"**{each.who}**" if _own(each.who) else each.who, f"{short(each.median)} {each.unit}"]
        row.append(" to ".join(map(short, each.spread)) if len(each.values) > 1 else "")
        row[1:1] = ["" if each.x is None else short(each.x)] if placed else []
        row += [_ratio(each, taken.find(measure, against, each.x))] if compared else []
        row += [each.setting] if set_up else []
        row += [part.notes.get(each.who, "")] if noted else []
        rows.append(tuple(row))
    yield from _table(head, rows)


def _ratio(series: Series, base: Series | None) -> str:
    if base is None:
        return ""
    if series == base:
        return "1"
    values = sorted(ratios(series, base))
    return f"{short(values[len(values) // 2])} ({short(values[0])} to {short(values[-1])})" if values else ""


def _circumstances(taken: Taken) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in taken.machine.items())
    versions = ", ".join(f"{name} {value}" for name, value in taken.versions.items())
    tried = " A quick try: these figures are worth nothing." if taken.quick else ""
    busy = " **The machine was busy with other work**, so that times are longer than they need be."
    return (
        f"Taken {taken.at} in {taken.took_s / 60:.1f} minutes, {taken.rounds} rounds; load before: "
        f"{taken.load_before:.1f}.{tried}{busy * (taken.load_before > BUSY)} {machine}; {versions}."
    )


def _plot(part: Part, taken: Taken, measure: str) -> str:
    series = taken.of(measure)
    title = f"{measure[0].upper()}{measure[1:]}"
    if all(each.x is not None for each in series):
        points: dict[str, list[tuple[float, float]]] = {}
        for each in series:
            points.setdefault(each.who, []).append((each.x or 0, each.median))
        return lines(title, series[0].unit, part.x_unit, points)
    rows = [Dot(each.who, each.median, *each.spread, _own(each.who)) for each in series]
    return dots(title, series[0].unit, rows)


def _own(who: str) -> bool:
    return who.partition(",")[0] == FOLDLOG


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines_of = [
        head,
        ["---", *("---:" if name in {"median", "measured"} else "---" for name in head[1:])],
        *rows,
    ]
    return ["| " + " | ".join(row) + " |" for row in lines_of]


def _slug(measure: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", measure.lower()).strip("-")
