"""The parser of flows: one method for each rule of the grammar, and errors that point into the text.

    flow      = stage { ">>" stage }
    stage     = part [ "*" ( count [ "until" predicate ] | "until" predicate ) ]
    part      = name  |  "(" flow { "|" flow } ")"  |  "{" { case "," } "else" ":" arm "}"
    case      = predicate ":" arm
    arm       = flow | "pass"
    predicate = [ "not" ] ( string | "contains" string | regex | path [ operator value ] | name )

Strings are JSON strings. White space, including line breaks, only separates.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, NoReturn, get_args

import msgspec

from ....eventlog.errors import FlowError
from ...ports.patterns import problem_of
from ...ports.suggestions import nearest
from ..paths import INDEX, STRING, parse_path
from .flow import LOOP_TIMES, Arm, Branch, Case, Flow, Loop, Node, Pass, parallel, series
from .predicates import At, Contains, Is, Matches, Named, Not, Operator, Predicate, Scalar, Simple

LOOP_TIMES_MAX = 1_000
NESTING_MAX = 32
"""The deepest nesting of groups, branches and loops."""

WORDS = frozenset({"contains", "else", "false", "not", "null", "pass", "true", "until"})
"""Reserved words, which are not valid as names of agents in a flow."""

_SURROGATE = re.compile("[\\ud800-\\udfff]")
_BLANK = re.compile(r"\s*")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(STRING)
_REGEX = re.compile(r"/((?:[^/\\\n]|\\[^\n])+)/(i?)")
_KEY = r"[A-Za-z_]\w*"
_PATH = re.compile(rf"\.(?:(?:{_KEY}|{INDEX})(?:\.{_KEY}|{INDEX})*)?", re.ASCII)
_OPERATOR = re.compile("|".join(sorted(get_args(Operator), key=len, reverse=True)))
_VALUE = re.compile(rf"{_STRING.pattern}|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|(?:true|false|null)\b")
_SHOWN = re.compile(r'"[^"\n]*"?|[A-Za-z0-9_-]+|[^\sA-Za-z0-9_"]+')


def parse_flow(text: str, names: Collection[str], tests: Collection[str] | None = None) -> Flow:
    """Return the tree of a flow between the agents of these names.

    `tests` are the names of the predicates that are functions; None leaves them unchecked. Raises `FlowError` with the
    position of a syntax error, an unknown agent, or an agent that occurs twice (after itself: a cycle). Checking for
    agents that do not occur in the flow is left to the caller.
    """
    if (surrogate := _SURROGATE.search(text)) is not None:
        raise FlowError("a character that is not valid Unicode", text, surrogate.start())
    return _Parser(text, names, tests).parse()


class _Parser:
    """A text with a position in it; each method advances the position past what it has read."""

    def __init__(self, text: str, names: Collection[str], tests: Collection[str] | None) -> None:
        self._text, self._names, self._tests = text, names, tests
        self._place = 0
        self._depth = 0
        self._seen: list[str] = []
        self._upstream: frozenset[str] = frozenset()
        """The nodes that run before the current position."""

    # --- the grammar ----------------------------------------------------------------------------------------------

    def parse(self) -> Flow:
        """Return the flow that is the whole text."""
        flow = self._flow()
        if self._found():
            hint = "; a parallel group needs parentheses: (a | b)" if self._at("|") else ""
            self._expected("'>>', '*' or the end of the flow", hint)
        return flow

    def _flow(self) -> Flow:
        upstream, first = self._upstream, len(self._seen)
        stages = [self._stage()]
        while self._accept(">>"):
            self._upstream = upstream | frozenset(self._seen[first:])
            stages.append(self._stage())
        self._upstream = upstream
        return series(stages)

    def _stage(self) -> Flow:
        part = self._part()
        if not self._accept("*"):
            return part
        times = self._count()
        until = self._predicate() if self._accept_word("until") else None
        return Loop(part, times, until)

    def _count(self) -> int:
        start, word = self._peek_word()
        if word == "until":
            return LOOP_TIMES
        if not word.isdecimal():
            self._expected("a count, as in (a >> b)*3, or until and a predicate")
        if len(word) > len(str(LOOP_TIMES_MAX)) or not 1 <= int(word) <= LOOP_TIMES_MAX:
            self._fail(start, f"a loop runs 1 to {LOOP_TIMES_MAX} times, not {word}")
        self._place = start + len(word)
        return int(word)

    def _part(self) -> Flow:
        start = self._start()
        if not (self._at("(") or self._at("{")):
            return Node(self._name())
        self._depth += 1
        if self._depth > NESTING_MAX:
            self._fail(start, f"nested more than {NESTING_MAX} deep; make the inner flow a swarm of its own")
        part = self._group() if self._accept("(") else self._branch()
        self._depth -= 1
        return part

    def _group(self) -> Flow:
        members = [self._flow()]
        while self._accept("|"):
            members.append(self._flow())
        if not self._accept(")"):
            self._expected("'>>', '|', '*' or ')'")
        return parallel(members)

    def _branch(self) -> Branch:
        start = self._start()
        self._accept("{")
        cases: list[Case] = []
        while not self._accept_word("else"):
            when = self._predicate()
            self._colon()
            cases.append(Case(when, self._arm()))
            if not self._accept(","):
                self._expected("'>>', '*' or ',' (a branch ends with else:, which may be pass)")
        if not cases:
            self._fail(start, "a branch needs a case before else")
        self._colon()
        otherwise = self._arm()
        if not self._accept("}"):
            self._expected("'>>', '*' or '}' (else: is a branch's last case)")
        return Branch(tuple(cases), otherwise)

    def _colon(self) -> None:
        if not self._accept(":"):
            self._expected("':'")

    def _arm(self) -> Arm:
        return Pass() if self._accept_word("pass") else self._flow()

    def _predicate(self) -> Predicate:
        if self._accept_word("not"):
            return Not(self._simple_predicate())
        return self._simple_predicate()

    def _simple_predicate(self) -> Simple:
        if self._accept_word("contains"):
            return Contains(self._string())
        if self._at('"'):
            return Is(self._string())
        if self._at("/"):
            return self._regex()
        if self._at("."):
            return self._comparison()
        return Named(self._test())

    def _regex(self) -> Matches:
        start = self._start()
        found = self._match(_REGEX)
        if found is None:
            self._fail(
                start, "the regular expression is not closed: write it between slashes, as in /bug|crash/i"
            )
        pattern = re.sub(r"\\(.)", lambda pair: "/" if pair[1] == "/" else pair[0], found[1])
        if (problem := problem_of(pattern)) is not None:
            self._fail(start, f"invalid regular expression: {problem}")
        return Matches(pattern, ignore_case=found[2] == "i")

    def _comparison(self) -> At:
        start = self._start()
        written = self._match(_PATH)
        try:
            path = parse_path(written[0]) if written else ()
        except ValueError as error:
            self._fail(start, str(error))
        if not self._at(">>") and (operator := self._match(_OPERATOR)) is not None:
            return At(path, msgspec.convert(operator[0], Operator), self._value())
        if not path:
            self._fail(start, "write a path as .key.key[0]; . alone needs a comparison, as in . >= 3")
        return At(path)

    # --- words ----------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        start, name = self._peek_word()
        if not name:
            self._expected("a name, '(' or '{'")
        if name in WORDS:
            self._fail(start, f"{name!r} is a reserved word, not the name of an agent")
        if name not in self._names:
            self._fail(start, f"no agent is named {name!r}{nearest(name, self._names)}")
        if name in self._upstream:
            self._fail(
                start,
                f"{name!r} already runs before this point: a cycle; to repeat, write a loop: (a >> b)*3",
            )
        if name in self._seen:
            self._fail(start, f"{name!r} occurs twice: an agent has one place in a flow")
        self._seen.append(name)
        self._place = start + len(name)
        return name

    def _test(self) -> str:
        start, name = self._peek_word()
        if not name or name in WORDS:
            self._expected('a predicate: "text", contains "text", /regex/, .json.path or a name')
        if self._tests is not None and name not in self._tests:
            near = nearest(name, self._tests)
            self._fail(start, f'no predicate is named {name!r}{near} (text needs quotes: "{name}")')
        self._place = start + len(name)
        return name

    def _string(self) -> str:
        start = self._start()
        found = self._match(_STRING)
        if found is None:
            self._expected('text in double quotes, as in "done"')
        return str(self._json(start, found[0]))

    def _value(self) -> Scalar:
        start = self._start()
        found = self._match(_VALUE)
        if found is None:
            self._expected("a string, a number, true, false or null")
        value: Scalar = self._json(start, found[0])
        return value

    def _json(self, start: int, written: str) -> Any:
        try:
            return msgspec.json.decode(written)
        except msgspec.DecodeError as error:
            self._fail(start, f"not valid JSON: {error}")

    # --- the position ---------------------------------------------------------------------------------------------

    def _start(self) -> int:
        """Skip white space and return the position."""
        blank = _BLANK.match(self._text, self._place)
        self._place = blank.end() if blank else self._place
        return self._place

    def _at(self, symbol: str) -> bool:
        """Return whether the text continues with the symbol."""
        return self._text.startswith(symbol, self._start())

    def _accept(self, symbol: str) -> bool:
        found = self._at(symbol)
        self._place += len(symbol) if found else 0
        return found

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._start())
        self._place = found.end() if found else self._place
        return found

    def _peek_word(self) -> tuple[int, str]:
        start = self._start()
        found = _WORD.match(self._text, start)
        return start, found[0] if found else ""

    def _accept_word(self, word: str) -> bool:
        start, found = self._peek_word()
        self._place = start + len(word) if found == word else start
        return found == word

    def _found(self) -> str:
        """Return the next token for an error message; empty at the end of the text."""
        found = _SHOWN.match(self._text, self._start())
        return found[0] if found else ""

    def _expected(self, what: str, hint: str = "") -> NoReturn:
        """Raise the error for a token that is not what the grammar expects here."""
        found = self._found()
        there = f"found {found!r}" if found else "but the flow ends"
        self._fail(self._start(), f"expected {what}, {there}{hint}")

    def _fail(self, place: int, reason: str) -> NoReturn:
        raise FlowError(reason, self._text, place)
