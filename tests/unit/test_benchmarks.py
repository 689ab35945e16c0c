"""The benchmarks themselves: no figure is asserted, only that they can be taken, kept and shown."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "maintainers" / "figures"


def benchmarks(*arguments: str | Path) -> str:
    """Return the output of `python -m benchmarks`, which must succeed."""
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def files(directory: Path, *kinds: str) -> dict[str, str]:
    return {path.name: path.read_text() for kind in kinds for path in directory.glob(kind)}


def test_the_recorded_page_and_its_plots_are_what_the_recorded_figures_render_to(tmp_path: Path) -> None:
    for name, text in files(FIGURES, "*.json").items():
        (tmp_path / name).write_text(text)
    benchmarks("--render", "--into", tmp_path)
    assert files(tmp_path, "*.md", "*.svg") == files(FIGURES, "*.md", "*.svg")


def test_recorded_figures_were_taken_in_earnest() -> None:
    recorded = {path.stem: msgspec.json.decode(path.read_bytes()) for path in FIGURES.glob("*.json")}
    assert recorded
    assert [name for name, taken in recorded.items() if taken["quick"]] == []
    assert [name for name, taken in recorded.items() if taken["part"] != name] == []


def test_a_part_is_measured_kept_and_shown_on_the_page(tmp_path: Path) -> None:
    said = benchmarks("cancelling", "--quick", "--into", tmp_path, "--json", tmp_path / "all" / "of.json")
    assert "from cancel() to RunCancelled" in " ".join(said.split())
    taken = msgspec.json.decode((tmp_path / "cancelling.json").read_bytes())
    assert [len(series["values"]) for series in taken["series"]] == [1, 1]
    assert msgspec.json.decode((tmp_path / "all" / "of.json").read_bytes()) == {"cancelling": taken}
    page = (tmp_path / "README.md").read_text()
    assert "## A cancel on its way" in page
    assert "these figures are worth nothing" in page


@pytest.mark.nightly
def test_workload_a_is_drawn_and_judged(tmp_path: Path) -> None:
    benchmarks("workload-a", "--quick", "--into", tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "| run alone, ratio to bare packed nats-py | <= 1.2 |" in page
    assert "![" in page
    assert (tmp_path / "workload-a-a-run-alone-wall-time.svg").read_text().startswith("<svg")
