"""The times of schedules, above all the hard ones: hours that do not exist, exist twice, or are half."""

from __future__ import annotations

import math
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from foldlog.eventlog import ConfigError
from foldlog.runtime.triggers.calendar import Cron, Every, jitter_of, written
from hypothesis import given
from hypothesis import strategies as st

HARD = [
    # expression, zone, from (local time), the next times as they are there
    ("spring: 02:30 does not exist", "30 2 * * *", "Europe/Oslo", "2026-03-28T03:00",
     ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
    ("spring: two times in the gap come once", "0,30 2 * * *", "Europe/Oslo", "2026-03-28T23:00",
     ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00", "2026-03-30T02:30+02:00"]),
    ("spring: a range over the gap", "0 1-3 * * *", "Europe/Oslo", "2026-03-29T00:40",
     ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00", "2026-03-30T01:00+02:00"]),
    ("spring: every hour", "0 * * * *", "Europe/Oslo", "2026-03-29T00:30",
     ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"]),
    ("autumn: 02:30 exists twice and comes once", "30 2 * * *", "Europe/Oslo", "2026-10-24T03:00",
     ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
    ("autumn: a range over the repeated hour", "0 1-3 * * *", "Europe/Oslo", "2026-10-25T00:40",
     ["2026-10-25T01:00+02:00", "2026-10-25T02:00+02:00", "2026-10-25T03:00+01:00"]),
    ("autumn: every half hour goes on through both hours", "*/30 * * * *", "Europe/Oslo", "2026-10-25T01:40",
     ["2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00", "2026-10-25T02:00+01:00", "2026-10-25T02:30+01:00",
      "2026-10-25T03:00+01:00"]),
    ("midnight does not exist", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00",
     ["2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"]),
    ("a gap of half an hour", "0 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00",
     ["2026-10-04T02:30+11:00", "2026-10-05T02:00+11:00"]),
    ("half an hour twice", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00",
     ["2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"]),
    ("a day that does not exist", "0 12 * * *", "Pacific/Apia", "2011-12-29T13:00",
     ["2011-12-31T00:00+14:00", "2011-12-31T12:00+14:00"]),
    ("an offset of quarters", "0 7 * * MON-FRI", "Asia/Kathmandu", "2026-03-06T08:00",
     ["2026-03-09T07:00+05:45", "2026-03-10T07:00+05:45"]),
    ("leap days", "0 0 29 2 *", "UTC", "2026-01-01T00:00", ["2028-02-29T00:00+00:00", "2032-02-29T00:00+00:00"]),
    ("the 31st, in the months that have one", "0 0 31 * *", "UTC", "2026-01-31T00:00",
     ["2026-03-31T00:00+00:00", "2026-05-31T00:00+00:00"]),
    ("day of month or day of week", "0 0 13 * FRI", "UTC", "2026-01-03T00:00",
     ["2026-01-09T00:00+00:00", "2026-01-13T00:00+00:00", "2026-01-16T00:00+00:00"]),
    ("Sunday is 0 and 7", "0 0 * * 7", "UTC", "2026-01-01T00:00",
     ["2026-01-04T00:00+00:00", "2026-01-11T00:00+00:00"]),
    ("a name, at the turn of a year", "@yearly", "America/New_York", "2026-12-31T23:59",
     ["2027-01-01T00:00-05:00", "2028-01-01T00:00-05:00"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "zone", "start", "times"), [case[1:] for case in HARD], ids=[case[0] for case in HARD]
)
def test_the_next_times_are_those_of_the_table(
    expression: str, zone: str, start: str, times: list[str]
) -> None:
    calendar = Cron(expression, zone, "schedule 'x'")
    at = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).timestamp()
    found: list[float] = []
    for _ in times:
        following = calendar.after(at)
        assert following is not None
        assert following > at
        found.append(at := following)
    assert found == [datetime.fromisoformat(each).timestamp() for each in times]


def test_there_are_seventeen_hard_cases() -> None:
    assert len(HARD) == len({case[0] for case in HARD}) == 17


@pytest.mark.parametrize(
    ("expression", "zone", "told"),
    [
        ("0 0 30 2 *", "UTC", "a day that never comes"),
        ("61 * * * *", "UTC", "bad minute"),
        ("* * * * * *", "UTC", "five fields"),
        ("@reboot", "UTC", "five fields"),
        ("", "UTC", "five fields"),
        ("0 7 * * *", "Europe/Atlantis", "is not a time zone"),
        ("0 7 * * *", "Europe", "is not a time zone"),
        ("0 7 * * *", "../../etc/passwd", "is not a time zone"),
        ("0 7 * * *", "", "is not a time zone"),
        ("0 7 * * *", "a\0b", "is not a time zone"),
        ("0 7 ٣ * *", "UTC", "bad day"),
    ],
)
def test_what_is_no_time_is_refused_with_its_place(expression: str, zone: str, told: str) -> None:
    with pytest.raises(ConfigError, match=r"^schedule 'x': .*") as refused:
        Cron(expression, zone, "schedule 'x'")
    assert told in str(refused.value)


@given(
    st.floats(min_value=0, max_value=4e9),
    st.integers(min_value=1, max_value=10**6),
    st.integers(min_value=0, max_value=2 * 10**9),
)
def test_every_is_aligned_and_misses_nothing(at: float, period_s: int, origin: int) -> None:
    every = Every(period_s, origin)
    following = every.after(at)
    assert following is not None
    assert at < following <= at + period_s * (1 + 1e-9) + 1e-6
    again = every.after(following)
    assert again == pytest.approx(following + period_s)


@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 1 * *", "15 */3 * * MON", "0,59 1-3 * * *"]),
    st.sampled_from(["Europe/Oslo", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kathmandu"]),
    st.floats(min_value=0, max_value=4e9),
)
def test_a_time_comes_after_the_one_before_from_wherever_one_looks(
    expression: str, zone: str, at: float
) -> None:
    """Looking from between two times gives the second of them, so that no restart passes one over."""
    calendar = Cron(expression, zone, "x")
    first = calendar.after(at)
    assert first is not None
    second = calendar.after(first)
    assert second is not None
    assert first > at
    assert second > first
    assert calendar.after((first + second) / 2) == second


def test_a_time_is_found_from_the_last_moment_before_it() -> None:
    at = datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Oslo")).timestamp()
    before = math.nextafter(at, -math.inf)
    assert [each.after(before) for each in (Cron("@yearly", "Europe/Oslo", ""), Every(3600, 0.0))] == [at, at]


@given(st.text(max_size=20), st.floats(min_value=0, max_value=4e9), st.floats(min_value=0, max_value=86400))
def test_jitter_depends_only_on_the_name_and_the_time(name: str, due_at: float, jitter_s: float) -> None:
    found = jitter_of(name, due_at, jitter_s)
    assert 0 <= found <= jitter_s
    assert found == jitter_of(name, due_at, jitter_s)


def test_a_time_is_written_alike_everywhere() -> None:
    assert written(1_772_380_800.0) == "2026-03-01T16:00:00Z"
    assert written(1_772_380_800.5) == "2026-03-01T16:00:00.500000Z"
