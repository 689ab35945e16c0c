"""The static types of functions for `tool`: what one takes and returns, and the dependencies of its context.

A type checker has to learn both of one argument. So it looks twice: a function is assignable to a protocol with two
overloads only if it matches each. The context is found at one of the first five places.
"""

from __future__ import annotations

from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from ..ports.runnable import DepsT
from .context import ToolContext

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Also(Protocol[P, R_co, Q]):
    """A function with the parameters `P` that may be called with `Q`, too."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> Any: ...


ContextFirst = Also[P, R, Concatenate[ToolContext[DepsT], ...]]
ContextSecond = Also[P, R, Concatenate[Any, ToolContext[DepsT], ...]]
ContextThird = Also[P, R, Concatenate[Any, Any, ToolContext[DepsT], ...]]
ContextFourth = Also[P, R, Concatenate[Any, Any, Any, ToolContext[DepsT], ...]]
ContextFifth = Also[P, R, Concatenate[Any, Any, Any, Any, ToolContext[DepsT], ...]]
