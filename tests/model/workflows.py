"""A model of workflows: code that is run again over its log does nothing twice, and notices when it no longer fits.

A program is a tree of calls, branches, races, conditions and loops, drawn at random; what it asks for depends on what
it was told. Its log has facts: asked, started, ended, chosen. A driver runs the code over the facts in log order,
stores in one commit what the code newly asks for, and then ends one open call, drawn at random; an unsafe call is
stored as started first. A driver may die before and after each commit and each effect; the next one has nothing but the
log. An unsafe call that had started is looked at, not run again (W20).

What must hold:
  once      no unsafe call runs twice
  same      the finished log, read by a fresh driver, leads to the same value and asks for nothing
  alike     two interleavings of one program give the same call the same place
  noticed   changed code never ends while the log has work that nobody asked for, or asked for otherwise
  choice    a branch that lost a race may be changed: the race keeps its winner
  left      when a gather or a race is left, none of its calls is open
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter, deque
from collections.abc import Generator
from typing import Any, NamedTuple

Program = tuple[tuple[Any, ...], ...]
"""Statements: ("call", tool, number), ("both", tool, number, number), ("gather", programs), ("first", programs),
("if", number, program, program), ("loop", times, program)."""
Code = Generator[Any, Any, int]
TOOLS = ("read", "look", "pay", "mail", "flaky")
UNSAFE = frozenset({"pay", "mail"})


class Rules(NamedTuple):
    """The rules of workflows; a mutation leaves one out."""

    placed_as_written: bool = True
    """A place is given when the call is written, within its branch (W31)."""
    compared: bool = True
    """A repeated request has to be the one that the log has (W32)."""
    in_order: bool = True
    """Nothing new is stored before all of the log, in related branches, was asked for (W33)."""
    choice_stored: bool = True
    """The winner of a race is a fact (W34)."""
    started_first: bool = True
    """An unsafe call is stored as started before it runs (W35)."""
    drained: bool = True
    """A gather or a race is left when nothing in it runs any more (W36)."""


class Diverged(Exception):
    """The code does not fit the log."""


class Crash(BaseException):
    """The driver dies here."""


class Failed(Exception):
    """A call failed."""


class Broken(Exception):
    """A property does not hold; the message is its name."""


class Log:
    """The facts of a run, by their kind, and what its calls did in the world."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[Any, ...]] = {}
        self.ended: dict[str, int | None] = {}
        self.started: set[str] = set()
        self.chosen: dict[str, int] = {}
        self.lost: set[str] = set()
        self.world: Counter[str] = Counter()
        self.until_crash = -1

    def tick(self) -> None:
        """Die, if it is time."""
        self.until_crash -= 1
        if self.until_crash == 0:
            raise Crash

    def is_lost(self, place: str) -> bool:
        return any(place.startswith(prefix) for prefix in self.lost)


class Call(NamedTuple):
    """A call of the code; `place` is empty if it is given only when the call is asked for."""

    place: str
    tool: str
    request: tuple[int, ...]


class Join(NamedTuple):
    place: str
    branches: tuple[tuple[str, Code], ...]
    is_race: bool


class Strand:
    """The code of a branch, at prefix `path`; `owner` is the gather or race that it belongs to."""

    def __init__(self, code: Code, path: str = "", owner: Open | None = None, index: int = 0) -> None:
        self.code, self.path, self.owner, self.index = code, path, owner, index


class Open:
    """A gather or a race that is not left."""

    def __init__(self, join: Join, waiting: Strand) -> None:
        self.join, self.waiting = join, waiting
        self.results: dict[int, Any] = {}
        self.won: int | None = None


class Writer:
    """The calls that the code of a branch makes."""

    def __init__(self, driver: Driver, path: str = "") -> None:
        self.driver, self.path, self.counts = driver, path, Counter[str]()

    def place(self, name: str) -> str:
        number = self.counts[name]
        self.counts[name] += 1
        return f"{self.path}{name}#{number}"

    def call(self, tool: str, *request: int) -> Call:
        return Call(self.place(tool) if self.driver.rules.placed_as_written else "", tool, request)

    def join(self, programs: tuple[Program, ...], acc: int, *, is_race: bool) -> Join:
        place = self.place("first" if is_race else "gather")
        paths = [f"{place}.{index}/" for index in range(len(programs))]
        branches = [
            (path, code(program, Writer(self.driver, path), acc))
            for path, program in zip(paths, programs, strict=True)
        ]
        return Join(place, tuple(branches), is_race)

    def both(self, *calls: Call) -> Join:
        return Join(self.place("both"), tuple((self.path, alone(call)) for call in calls), is_race=False)


def alone(call: Call) -> Code:
    return (yield call)


def code(program: Program, run: Writer, acc: int = 1) -> Code:
    """The code that a program stands for, as a user would write it."""
    for statement in program:
        try:
            match statement:
                case "call", tool, number:
                    acc = (acc * 31 + (yield run.call(tool, number, acc))) % 1_000_003
                case "both", tool, one, other:
                    first, second = run.call(tool, one, acc), run.call(tool, other, acc)
                    acc = (acc * 31 + sum((yield run.both(second, first)))) % 1_000_003
                case "gather", programs:
                    acc = (acc + 13 * sum((yield run.join(programs, acc, is_race=False)))) % 1_000_003
                case "first", programs:
                    winner, value = yield run.join(programs, acc, is_race=True)
                    acc = (acc + value + winner) % 1_000_003
                case "if", number, one, other:
                    acc = yield from code(one if acc % 3 == number else other, run, acc)
                case "loop", times, body:
                    for _ in range(times):
                        acc = yield from code(body, run, acc)
        except Failed:
            acc = (acc * 7 + 1) % 1_000_003
    return acc


class Driver:
    """Runs the code of a program over a log, until it dies or the code ends."""

    def __init__(self, log: Log, program: Program, rules: Rules, dice: random.Random) -> None:
        self.log, self.rules, self.dice = log, rules, dice
        self.waiting: dict[str, Strand] = {}
        self.strands: set[Strand] = set()
        self.joins: set[Open] = set()
        self.given: set[str] = set()
        self.unseen = dict.fromkeys(log.asked)
        self.new: dict[str, tuple[Any, ...]] = {}
        self.chosen: dict[str, int] = {}
        self.polled = Counter[str]()
        self.seen: dict[str, tuple[Any, ...]] = {}
        """All that the code has asked for."""
        self.ready: deque[tuple[Strand, Any]] = deque()
        self.value: int | None = None
        self._begin(Strand(code(program, Writer(self))))

    def run(self) -> int:
        """Return what the code comes to. Raises `Crash`, `Diverged`, `Broken`."""
        while True:
            self._go_on()
            self._commit()
            if self.value is not None:
                return self.value
            self._end_a_call()

    def _commit(self) -> None:
        if not self.new and not self.chosen:
            return
        log = self.log
        log.tick()
        log.asked.update(self.new)
        if self.rules.choice_stored:
            log.chosen.update(self.chosen)
        self.new, self.chosen = {}, {}
        log.tick()

    def _end_a_call(self) -> None:
        """End one of the calls that are open. Of two that end at once, either is first in the log."""
        log = self.log
        place = self.dice.choice([each for each in log.asked if each not in log.ended])
        tool, request = log.asked[place]
        if tool in UNSAFE and place in log.started:
            outcome: int | None = 0  # somebody looked
        else:
            if tool in UNSAFE and self.rules.started_first:
                log.tick()
                log.started.add(place)
                log.tick()
            log.world[place] += 1
            log.tick()
            outcome = result(tool, request)
        log.ended[place] = outcome
        log.tick()

    # --- the code -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        self._work()
        for place in [each for each in self.log.ended if each not in self.given]:
            self.given.add(place)
            strand = self.waiting.pop(place, None)
            if strand is not None and strand in self.strands:
                self.ready.append((strand, self._outcome(place)))
            self._leave_all()
            self._work()
        fresh = self.new
        if self.rules.in_order:
            open_ones = [place for place in self.unseen if not self._is_lost(place)]
            if any(related(old, new) for old in open_ones for new in fresh):
                raise Diverged
            if self.value is not None and open_ones:
                raise Diverged

    def _is_lost(self, place: str) -> bool:
        return self.log.is_lost(place)

    def _outcome(self, place: str) -> Any:
        ended = self.log.ended[place]
        return Failed() if ended is None else ended

    def _begin(self, strand: Strand) -> None:
        self.strands.add(strand)
        self.ready.append((strand, None))

    def _work(self) -> None:
        while self.ready:
            strand, value = self.ready.popleft()
            if strand in self.strands:
                self._step(strand, value)
            self._leave_all()

    def _step(self, strand: Strand, value: Any) -> None:
        try:
            asked = strand.code.throw(value) if isinstance(value, Failed) else strand.code.send(value)
        except StopIteration as stop:
            self._ended(strand, stop.value)
            return
        except Failed as failed:
            self._ended(strand, failed)
            return
        if isinstance(asked, Join):
            opened = Open(asked, strand)
            self.joins.add(opened)
            for index, (path, branch) in enumerate(asked.branches):
                self._begin(Strand(branch, path, opened, index))
        else:
            self._ask(asked, strand)

    def _ask(self, call: Call, strand: Strand) -> None:
        place, asked = call.place, (call.tool, call.request)
        if not place:
            place = f"{call.tool}#{self.polled[call.tool]}"
            self.polled[call.tool] += 1
        self.seen[place] = asked
        if place in self.log.asked:
            if self.rules.compared and self.log.asked[place] != asked:
                raise Diverged
            self.unseen.pop(place, None)
        else:
            self.new[place] = asked
        if place in self.given:
            self.ready.append((strand, self._outcome(place)))
        else:
            self.waiting[place] = strand

    def _ended(self, strand: Strand, value: Any) -> None:
        self.strands.discard(strand)
        owner = strand.owner
        if owner is None:
            self.value = -1 if isinstance(value, Failed) else value
            return
        owner.results[strand.index] = value
        recorded = self.log.chosen.get(owner.join.place)
        if owner.join.is_race and owner.won is None and recorded in {None, strand.index}:
            self._choose(owner, strand.index)

    def _choose(self, race: Open, index: int) -> None:
        race.won = index
        if race.join.place not in self.log.chosen:
            self.chosen[race.join.place] = index
        lost = [path for number, (path, _) in enumerate(race.join.branches) if number != index]
        self.log.lost.update(lost if self.rules.choice_stored else ())
        for path in lost:
            self.strands = {each for each in self.strands if not each.path.startswith(path)}
            self.joins = {each for each in self.joins if not each.join.place.startswith(path)}
            self.new = {place: asked for place, asked in self.new.items() if not place.startswith(path)}

    def _leave_all(self) -> None:
        for opened in list(self.joins):
            if self._is_over(opened):
                self.joins.discard(opened)
                if any(self._is_within(opened, place) for place in self._open_calls()):
                    raise Broken("left")
                self.ready.append((opened.waiting, self._value_of(opened)))

    def _is_over(self, opened: Open) -> bool:
        is_full = len(opened.results) == len(opened.join.branches)
        has_failed = any(isinstance(value, Failed) for value in opened.results.values())
        if not opened.join.is_race:
            return is_full or (has_failed and not self.rules.drained)
        if opened.won is None:
            return False
        return not self.rules.drained or not any(
            self._is_within(opened, place) for place in self._open_calls()
        )

    def _open_calls(self) -> list[str]:
        """The calls of the log whose end the code has not been given."""
        return [place for place in self.log.asked if place not in self.given]

    def _is_within(self, opened: Open, place: str) -> bool:
        return place.startswith(f"{opened.join.place}.")

    def _value_of(self, opened: Open) -> Any:
        if opened.join.is_race:
            value = opened.results[opened.won or 0]
            return value if isinstance(value, Failed) else (opened.won, value)
        values = [opened.results[index] for index in sorted(opened.results)]
        return next((each for each in values if isinstance(each, Failed)), values)


def related(one: str, other: str) -> bool:
    first, second = one.split("/")[:-1], other.split("/")[:-1]
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared]


def result(tool: str, request: tuple[int, ...]) -> int | None:
    """The result of a call: null if it fails."""
    drawn = random.Random(f"{tool} {request}").randrange(97)
    return None if tool == "flaky" and drawn % 3 == 0 else drawn


# --- programs ---------------------------------------------------------------------------------------------------------


def drawn_program(dice: random.Random, depth: int = 0) -> Program:
    return tuple(_statement(dice, depth) for _ in range(dice.randrange(1, 5)))


def _statement(dice: random.Random, depth: int) -> tuple[Any, ...]:
    kind = dice.random()
    if kind < 0.5 or depth > 1:
        return ("call", dice.choice(TOOLS), dice.randrange(9))
    if kind < 0.6:
        return ("both", dice.choice(TOOLS), dice.randrange(9), dice.randrange(9, 18))
    if kind < 0.75:
        return ("gather", tuple(drawn_program(dice, depth + 1) for _ in range(dice.randrange(2, 4))))
    if kind < 0.85:
        return ("first", tuple(drawn_program(dice, depth + 1) for _ in range(2)))
    if kind < 0.93:
        return ("if", dice.randrange(3), drawn_program(dice, depth + 1), drawn_program(dice, depth + 1))
    return ("loop", dice.randrange(1, 4), drawn_program(dice, depth + 1))


def changed_program(dice: random.Random, program: Program) -> Program:
    """A statement is deleted, inserted or moved, or has other arguments."""
    index, pay = dice.randrange(len(program)), ("call", dice.choice(TOOLS), dice.randrange(9))
    before, at, after = program[:index], program[index], program[index + 1 :]
    match dice.choice(["delete", "insert", "move", "arguments", "append"]):
        case "delete":
            return before + after
        case "insert":
            return (*before, pay, at, *after)
        case "move":
            return (*before, *after, at)
        case "append":
            return (*program, pay)
        case _:
            return (*before, (*at[:2], at[2] + 10), *after) if at[0] == "call" else (*before, pay, *after)


# --- checks -----------------------------------------------------------------------------------------------------------


def to_the_end(program: Program, rules: Rules, dice: random.Random, takeovers: int) -> tuple[Log, int]:
    """Run a program with drivers that die, and one that does not. Raises `Diverged`, `Broken`."""
    log = Log()
    while True:
        log.until_crash = dice.randrange(1, 30) if takeovers else -1
        try:
            return log, Driver(log, program, rules, dice).run()
        except Crash:
            takeovers -= 1


def check_takeovers(rules: Rules, seed: int) -> str:
    """Return the property that a random program breaks, run by drivers that die; empty if none."""
    dice = random.Random(seed)
    program = drawn_program(dice)
    try:
        log, value = to_the_end(program, rules, dice, dice.randrange(6))
        stored = log.asked.copy(), log.ended.copy(), log.chosen.copy()
        again = Driver(log, program, rules, dice).run()
    except Diverged:
        return "same"
    except Broken as broken:
        return str(broken)
    if any(count > 1 for place, count in log.world.items() if log.asked[place][0] in UNSAFE):
        return "once"
    return "" if (again, log.asked, log.ended, log.chosen) == (value, *stored) else "same"


def check_places(rules: Rules, seed: int) -> str:
    """Return `alike` if two interleavings place the same call differently. Programs with races ask for other calls."""
    program = drawn_program(random.Random(seed))
    if "'first'" in repr(program):
        return ""
    one, other = (to_the_end(program, rules, random.Random(f"{seed} {n}"), 0)[0].asked for n in range(2))
    return "" if one == other else "alike"


def check_changes(rules: Rules, seed: int) -> str:
    """Return the property that changed code breaks, which takes over a run at a random operation."""
    dice = random.Random(seed)
    program = drawn_program(dice)
    log = Log()
    log.until_crash = dice.randrange(2, 60)
    with contextlib.suppress(Crash):
        Driver(log, program, rules, dice).run()
    log.until_crash = -1
    before = log.asked.copy()
    driver = Driver(log, changed_program(dice, program), rules, dice)
    try:
        driver.run()
    except Diverged:
        return ""
    except Broken as broken:
        return str(broken)
    left = [place for place in driver.unseen if not log.is_lost(place)]
    fits = all(driver.seen[place] == asked for place, asked in before.items() if place in driver.seen)
    return "" if fits and not left else "noticed"


def check_choice(rules: Rules, seed: int) -> str:
    """Return `choice` if the branches that lost a race cannot be left out of the code."""
    dice = random.Random(seed)
    program: Program = (("first", (drawn_program(dice, 2), drawn_program(dice, 2))), ("call", "look", 1))
    log, value = to_the_end(program, rules, dice, 0)
    winner = next(iter(log.chosen.values()), None)
    branches = tuple(each if number == winner else () for number, each in enumerate(program[0][1]))
    try:
        return "" if Driver(log, (("first", branches), program[1]), rules, dice).run() == value else "choice"
    except Diverged:
        return "choice"
