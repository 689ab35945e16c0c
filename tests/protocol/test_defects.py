"""Defects that are put into a copy of the runtime are found by the simulation, each at its recorded seed."""

from __future__ import annotations

from pathlib import Path

import foldlog
import pytest
from foldlog.replay.simulation import SCENARIOS

from tests.protocol.defects.defects import (
    DOCUMENT,
    Change,
    Defect,
    document,
    everywhere,
    hunted,
    nearby,
    read,
)

AT_LEAST = 24
PARTS = 6
"""By day one in so many is hunted; the rest at night."""
REFRESH = "python -m tests.protocol.defects.refresh"


@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=[] if n == 0 else pytest.mark.nightly) for n in range(PARTS)]
)
def test_each_defect_is_found_at_its_seed(part: int, tmp_path: Path) -> None:
    found = list(hunted([(defect, nearby(defect)) for defect in read()[part::PARTS]], tmp_path))
    assert [f"{each.name}: {each.error}" for each in found if each.error] == [], (
        f"mend defects.toml: {REFRESH}"
    )
    assert [each.name for each in found if not each.problems] == [], f"search again: {REFRESH}"


def test_each_defect_can_still_be_put_into_the_source() -> None:
    lost = [told for defect in read() if (told := _misfit(defect))]
    assert lost == [], f"mend defects.toml: {REFRESH}"


def _misfit(defect: Defect) -> str:
    """Return the file that a change of the defect, made after those before it, does not fit; empty for none."""
    texts: dict[str, str] = {}
    for change in defect.change:
        text = texts.get(change.file) or (Path(foldlog.__file__).parent / change.file).read_text()
        if text.count(change.old) != 1:
            return f"{defect.name}: {change.file}"
        texts[change.file] = text.replace(change.old, change.new)
    return ""


def test_there_are_enough_defects_and_each_says_what_found_it() -> None:
    defects = read()
    assert len(defects) >= AT_LEAST
    assert len({defect.name for defect in defects}) == len(defects)
    for defect in defects:
        assert defect.breaks
        assert defect.scenario in SCENARIOS
        assert defect.property
        assert 0 < defect.tried <= len(everywhere())


def test_a_change_that_does_not_apply_any_more_is_told_by_file(tmp_path: Path) -> None:
    change = Change(file="runtime/driving/driver.py", old="not a line of it", new="")
    defect = Defect(name="gone", breaks="nothing", change=(change,), scenario="pure")
    (found,) = hunted([(defect, [("pure", 1)])], tmp_path, processes=1)
    assert found.problems == ()
    assert found.error.startswith("driver.py has this 0 times, not once")


def test_an_unsafe_call_that_starts_on_an_old_word_of_the_log_is_found(tmp_path: Path) -> None:
    old = "fresh = self.clock.monotonic() - self._proven_at < holds_s"
    change = Change(file="runtime/driving/driver.py", old=old, new="fresh = True")
    rare = Defect(name="an-old-proof", breaks="", change=(change,), scenario="approval", seed=142)
    (found,) = hunted([(rare, nearby(rare))], tmp_path, processes=1)
    assert found.problems[0].startswith("P4"), found


@pytest.mark.nightly
def test_a_model_that_is_called_after_a_takeover_during_the_read_of_its_budgets_is_found(
    tmp_path: Path,
) -> None:
    old = "elif self._ending() is None:  # the read of the budgets took its time"
    change = Change(file="runtime/driving/driver.py", old=old, new="else:")
    rare = Defect(name="asked-late", breaks="", change=(change,), scenario="budgeted", seed=511)
    (found,) = hunted([(rare, nearby(rare))], tmp_path, processes=1)
    assert found.properties == {"REQUEST"}, found.error


def test_a_copy_without_a_defect_breaks_nothing(tmp_path: Path) -> None:
    change = Change(
        file="runtime/driving/driver.py", old='"""Driving one run:', new='"""Driving one run, copied:'
    )
    defect = Defect(name="none", breaks="nothing", change=(change,))
    (found,) = hunted([(defect, everywhere()[:34])], tmp_path, processes=1)
    assert (found.error, found.problems, found.tried) == ("", (), 34)


def test_the_page_of_the_documentation_has_every_defect() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(read()), f"write it again: {REFRESH}"


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("defect", read(), ids=lambda defect: defect.name)
def test_each_defect_is_found_within_forty_seeds_of_every_scenario(defect: Defect, tmp_path: Path) -> None:
    (found,) = hunted([(defect, everywhere())], tmp_path, processes=1)
    assert found.problems, found.error
