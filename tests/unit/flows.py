"""Generated flows in normal form, in which no name stands twice, and predicates."""

import functools
import itertools

from foldlog.runtime.swarm import (
    Arm,
    At,
    Branch,
    Case,
    Contains,
    Flow,
    Is,
    Loop,
    Matches,
    Named,
    Node,
    Not,
    Pass,
    Predicate,
)
from foldlog.runtime.swarm.flow import parallel, series
from hypothesis import strategies as st

PATTERNS = ("a|b", r"\bx/y\b", r"\\/", "é", r"[/\"]", "^$")
TEXTS = st.text(max_size=5)
KINDS = ("node", "series", "parallel", "branch", "loop")
KEYS = st.sampled_from(["a", "ok", "b_2", "odd key", "0", ""]) | st.integers(0, 9)


@functools.cache
def predicates() -> st.SearchStrategy[Predicate]:
    numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    scalars = TEXTS | st.booleans() | st.none() | numbers
    paths = st.lists(KEYS, max_size=3).map(tuple)
    simple = (
        st.builds(Is, TEXTS)
        | st.builds(Contains, TEXTS)
        | st.builds(Matches, st.sampled_from(PATTERNS), st.booleans())
        | st.builds(At, paths, st.sampled_from(["!=", "<", "<=", ">", ">="]), scalars)
        | st.builds(At, st.lists(KEYS, min_size=1, max_size=3).map(tuple))
        | st.builds(Named, st.sampled_from(["p", "q"]))
    )
    return simple | st.builds(Not, simple)


@st.composite
def flows(draw: st.DrawFn, depth: int = 3) -> Flow:
    """A flow of at most this depth, whose nodes are called n0, n1, ... in the order of the text."""
    return _Drawing(draw).flow(depth)


class _Drawing:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._numbers = itertools.count()

    def flow(self, depth: int) -> Flow:
        match self._draw(st.sampled_from(KINDS if depth else KINDS[:1])):
            case "series":
                return series(self._several(depth - 1))
            case "parallel":
                return parallel(self._several(depth - 1))
            case "branch":
                cases = [
                    Case(self._draw(predicates()), self._arm(depth - 1))
                    for _ in range(self._draw(st.integers(1, 2)))
                ]
                return Branch(tuple(cases), self._arm(depth - 1))
            case "loop":
                body = self.flow(depth - 1)
                return Loop(body, self._draw(st.integers(1, 3)), self._draw(st.none() | predicates()))
            case _:
                return Node(f"n{next(self._numbers)}")

    def _several(self, depth: int) -> list[Flow]:
        return [self.flow(depth) for _ in range(self._draw(st.integers(2, 3)))]

    def _arm(self, depth: int) -> Arm:
        return Pass() if self._draw(st.integers(0, 3)) == 0 else self.flow(depth)
