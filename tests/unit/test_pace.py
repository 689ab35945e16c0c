"""A batch is worth as many messages as it takes the time of, as far as that was measured, and not for ever."""

from foldlog.eventlog.jetstream.pace import HALF_LIFE_S, WORTH, WORTH_MAX, WORTH_MIN, Pace

SINGLES = 64


def paced(single_s: float, batch_s: float, *, clusters: int = 1) -> tuple[Pace, float]:
    """A pace that has seen messages and a batch take so long, and the time of the last answer."""
    pace, now = Pace(), 100.0
    for _ in range(2 * SINGLES // clusters):
        now += single_s * clusters
        for _ in range(clusters):  # their answers come at once
            pace.stored(99.0, now, batch=False)
    now += batch_s
    pace.stored(99.0, now, batch=True)
    return pace, now


def test_what_was_never_measured_is_worth_what_it_usually_is() -> None:
    pace = Pace()
    assert pace.worth(100.0) == WORTH
    pace.stored(100.0, 100.1, batch=True)
    assert pace.worth(100.1) == WORTH


def test_a_batch_is_worth_the_messages_that_take_as_long() -> None:
    pace, now = paced(0.25, 5.0)
    assert pace.worth(now) == 20


def test_answers_that_arrive_in_clusters_count_as_if_they_came_one_by_one() -> None:
    pace, now = paced(0.25, 5.0, clusters=8)
    assert pace.worth(now) == 20


def test_a_message_that_waited_for_nothing_tells_nothing() -> None:
    pace, now = paced(0.25, 5.0)
    for _ in range(SINGLES):
        pace.stored(now + 1.0, now + 3.0, batch=False)
        now += 3.0
    pace.stored(now, now + 5.0, batch=True)
    assert pace.worth(now + 5.0) == 20


def test_one_batch_that_was_slow_among_others_does_not_count() -> None:
    pace, now = paced(0.25, 5.0)
    for batch_s in (5.0, 500.0, 5.0):
        now += batch_s
        pace.stored(now - batch_s, now, batch=True)
    assert pace.worth(now) == 20


def test_a_dear_batch_is_tried_again_one_day() -> None:
    pace, now = paced(0.25, 25.0)
    assert pace.worth(now) == 100
    assert pace.worth(now + 2 * HALF_LIFE_S) == 25


def test_the_worth_has_bounds() -> None:
    dear, now = paced(0.25, 2500.0)
    assert dear.worth(now) == WORTH_MAX
    assert dear.worth(now + 1e9) == WORTH_MIN
