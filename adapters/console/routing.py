"""Define a route: its method, path and role, the shapes of its query, body and answer, and its endpoint.

The table of routes (`table.py`) is the single source: the application, the OpenAPI document and the security tests are
derived from it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec
from starlette.requests import Request

from ...eventlog.events import Actor as Author
from ..http.access import Role
from .identity import Actor
from .streaming.viewer import Streams

if TYPE_CHECKING:
    from ...projections.projector import RunIndex
    from ...runtime import RunHandle, Runtime
    from ...runtime.operating.budget_list import BudgetList
    from .identity import Identity
    from .options import ApiOptions

BODY_BYTES_MAX = 8 << 20
"""The largest body of a request, unless its route says otherwise."""
LIMIT_MAX = 500


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters, or an empty body."""


class Page(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of every list: at most `limit` rows, after the row where the page `before` ended."""

    limit: int = msgspec.field(default=50)
    before: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise ValueError(f"limit is from 1 to {LIMIT_MAX}, not {self.limit}")


Q = TypeVar("Q")
B = TypeVar("B")


class Door:
    """The state that all routes share."""

    def __init__(self, runtime: Runtime, identity: Identity, options: ApiOptions) -> None:
        self.runtime, self.identity, self.options = runtime, identity, options
        self.streams = Streams(runtime)
        self.locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        """A lock for each idempotency key: of equal requests to this process, one is executed and the others wait."""
        self.doctor: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None
        """Returns the findings about this machine and the server of the log."""
        self.budgets: tuple[float, BudgetList] | None = None
        """The time of the last listing of the budgets (monotonic seconds), and its result."""

    async def aclose(self) -> None:
        """End all streams with a last frame."""
        await self.streams.aclose()

    async def index(self) -> RunIndex:
        """Return the projections."""
        return await self.runtime.index()


class Call(msgspec.Struct, Generic[Q, B], frozen=True):
    """A request whose actor has the role of the route, with its validated query and body."""

    door: Door
    request: Request
    actor: Actor
    query: Q
    body: B
    request_id: str
    key: str = ""
    """The `Idempotency-Key`; empty for none."""
    digest: str = ""
    """The SHA-256 (hex) of the request: its method, address and body."""

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        return str(self.request.path_params[name])

    @property
    def author(self) -> Author:
        """The author of what the request does, as events name it."""
        return Author(by=self.actor.name, via=self.actor.via, request_id=self.request_id)

    @property
    def runtime(self) -> Runtime:
        """The runtime."""
        return self.door.runtime

    @property
    def run(self) -> RunHandle[str]:
        """The run of the path."""
        return self.door.runtime.get_run(self.path("run"))


class Answered(msgspec.Struct, frozen=True):
    """An answer with another status than the route's, or with headers."""

    content: Any
    status: int = 200
    headers: dict[str, str] = {}


Endpoint = Callable[[Call[Any, Any]], Awaitable[Any]]
Cost = Literal["", "write", "start", "heavy", "sign-in"]
"""The rate limit that applies to a route: see `rates.py`."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A route of the API. `role` None: no sign-in is needed. `path` is relative to `/api/v1`.

    `answer` is the type of the answer, or a tuple of types; None: the answer is not JSON, but of the media type
    `media`.
    """

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    role: Role | None
    endpoint: Endpoint
    query: type[Any] | None = Nothing
    """The type of the query parameters; None for a route that parses them itself."""
    body: type[Any] | None = None
    answer: Any = None
    status: int = 200
    cost: Cost = ""
    body_bytes_max: int = BODY_BYTES_MAX
    media: str = ""
    keyed: bool = True
    """Whether its answers may be stored for an `Idempotency-Key`, because they contain no secret."""

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.endpoint.__name__

    @property
    def summary(self) -> str:
        """The first sentence of the endpoint's docstring."""
        return (self.endpoint.__doc__ or "").strip().partition("\n")[0]

    @property
    def is_write(self) -> bool:
        """True if the route may change something."""
        return self.method != "GET" and self.cost != "heavy"
