"""Defects that are put into a copy of the runtime are found by the simulation, each at its recorded seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from foldlog.replay.simulation import SCENARIOS

from tests.protocol.defects.defects import (
    DOCUMENT,
    SCHEDULES,
    Change,
    Defect,
    document,
    everywhere,
    hunted,
    nearby,
    read,
)

AT_LEAST = 24
REFRESH = "python -m tests.protocol.defects.refresh"


@pytest.mark.timeout(600)
def test_each_defect_is_found_at_its_seed(tmp_path: Path) -> None:
    found = list(hunted([(defect, nearby(defect)) for defect in read()], tmp_path))
    assert [f"{each.name}: {each.error}" for each in found if each.error] == [], (
        f"mend defects.toml: {REFRESH}"
    )
    assert [each.name for each in found if not each.problems] == [], f"search again: {REFRESH}"


def test_there_are_enough_defects_and_each_says_what_found_it() -> None:
    defects = read()
    assert len(defects) >= AT_LEAST
    assert len({defect.name for defect in defects}) == len(defects)
    for defect in defects:
        assert defect.breaks
        assert defect.scenario in SCENARIOS
        assert defect.property
        assert 0 < defect.tried <= SCHEDULES


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


def test_a_copy_without_a_defect_breaks_nothing(tmp_path: Path) -> None:
    change = Change(
        file="runtime/driving/driver.py", old='"""Driving one run:', new='"""Driving one run, copied:'
    )
    defect = Defect(name="none", breaks="nothing", change=(change,))
    (found,) = hunted([(defect, everywhere(34))], tmp_path, processes=1)
    assert (found.error, found.problems, found.tried) == ("", (), 34)


def test_the_page_of_the_documentation_has_every_defect() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(read()), f"write it again: {REFRESH}"


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", read(), ids=lambda defect: defect.name)
def test_each_defect_is_found_within_two_thousand_schedules(defect: Defect, tmp_path: Path) -> None:
    (found,) = hunted([(defect, everywhere())], tmp_path, processes=1)
    assert found.problems, found.error
