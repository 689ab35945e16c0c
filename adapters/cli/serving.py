"""The options of `foldlog serve` and `foldlog console`, and the process that both are."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gc
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import LogForm
from .settings import Settings

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ...runtime import Registry, Runtime
    from ..console.options import ApiOptions
    from ..console.routing import Door
    from ..http.access import Access

Protocols = Annotated[
    str,
    typer.Option(
        metavar="NAMES", help="Serve agents over these, with commas between: a2a, agui, mcp, nats, responses."
    ),
]
FULL_COLLECTION_AFTER = 500
"""The number of smaller garbage collections between two full ones.

A full one holds up all streams for up to a tenth of a second; by default, each question about a run of 10,000 events
comes with one.
"""
NAMES_MAX = 12
"""Maximum number of hooks that are listed at the start."""
_DOOR: dict[str, Any] = {
    "host": (Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")], "127.0.0.1"),
    "port": (
        Annotated[
            int | None,
            typer.Option(metavar="PORT", min=0, max=65535, help="Port; default: 7717, or a free one."),
        ],
        None,
    ),
    "no_auth": (
        Annotated[bool, typer.Option("--no-auth", help="Let everybody do everything; on loopback only.")],
        False,
    ),
    "read_only": (
        Annotated[bool, typer.Option("--read-only", help="Users who sign in may only look.")],
        False,
    ),
    "base_path": (
        Annotated[str, typer.Option(metavar="PATH", help="Path that a proxy keeps, such as /foldlog.")],
        "",
    ),
    "allow_host": (
        Annotated[
            list[str] | None,
            typer.Option(metavar="NAME", help="A further name that it is reached by. Repeatable."),
        ],
        None,
    ),
    "allow_origin": (
        Annotated[
            list[str] | None,
            typer.Option(metavar="ORIGIN", help="Pages that may call the API with a token. Repeatable."),
        ],
        None,
    ),
    "trust_proxy": (
        Annotated[
            list[str] | None,
            typer.Option(metavar="CIDR", help="Proxies that name the user in a header. Repeatable."),
        ],
        None,
    ),
    "user_header": (
        Annotated[str, typer.Option(metavar="NAME", help="The proxy's header with the user's name.")],
        "X-Forwarded-User",
    ),
    "role_header": (
        Annotated[str, typer.Option(metavar="NAME", help="The proxy's header with the user's role.")],
        "X-Forwarded-Role",
    ),
    "grace_s": (
        Annotated[
            float,
            typer.Option(metavar="SECONDS", min=0, help="How long requests may continue after SIGTERM."),
        ],
        10.0,
    ),
    "log_format": (LogForm, "text"),
}
"""The options of a server, by the fields of `Serving`, with their defaults."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Serving:
    """The options of both commands that serve."""

    host: str = "127.0.0.1"
    port: int | None = None
    no_auth: bool = False
    read_only: bool = False
    base_path: str = ""
    allow_host: Sequence[str] = ()
    allow_origin: Sequence[str] = ()
    trust_proxy: Sequence[str] = ()
    user_header: str = "X-Forwarded-User"
    role_header: str = "X-Forwarded-Role"
    grace_s: float = 10.0
    log_format: Any = "text"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Served:
    """The parts to serve: webhooks, the API, the page, protocols; with the agents of the registry at a path.

    `executor` is that of the runs that protocols start.
    """

    hooks: bool = False
    api: bool = False
    console: bool = False
    protocols: tuple[str, ...] = ()
    executor: str = "durable"
    registry: str | None = None
    open: bool = False


def with_door(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of a server; it receives them as `door`."""

    @functools.wraps(command)
    def served(*args: Any, **given: Any) -> int:
        fields: dict[str, Any] = {name: given.pop(name) for name in _DOOR}
        for name in ("allow_host", "allow_origin", "trust_proxy"):
            fields[name] = tuple(fields[name] or ())
        return command(*args, door=Serving(**fields), **given)

    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _DOOR.items()
    ]
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "door"]
    served.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    served.__annotations__ = {each.name: each.annotation for each in [*own, *added]}
    return served


async def serve_http(settings: Settings, what: Served, door: Serving) -> int:
    """Serve until SIGTERM or Ctrl-C: requests under way are finished, new ones are not taken."""
    from ...runtime import Registry
    from ...runtime.driving.namespace import project_budgets
    from ..http.server import served
    from .loading import load_registry
    from .loops import interruption
    from .opening import opened
    from .output.records import announcer
    from .output.terminal import Screen

    screen = Screen(settings)
    say = announcer(screen, door.log_format)
    registry: Registry = Registry() if what.registry is None else load_registry(what.registry)
    budgets = project_budgets(None if what.registry is None else registry)
    closing = asyncio.Event()
    async with (
        opened(settings, registry, budgets=budgets, log_format=door.log_format) as runtime,
        _application(runtime, what, door, closing) as (app, names, api),
    ):
        with interruption() as interrupted:
            async with served(app, door.host, door.port, door.grace_s) as address:
                gc.freeze()  # what is there now stays: no collection holds up streams to look at it
                gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION_AFTER)
                say(f"serving {names} at {address}{door.base_path}")
                if api is not None:
                    api.doctor = functools.partial(_findings, settings)
                    _tell_access(screen, api, f"{address}{door.base_path}", opens=what.open)
                await interrupted.wait()
                closing.set()
                if api is not None:
                    await api.aclose()
                say("draining: no new requests are taken (repeat to exit immediately)")
    say("the server has ended")
    return 0


async def _findings(settings: Settings) -> list[dict[str, Any]]:
    from .checks import all_checks

    return [dataclasses.asdict(check) async for check in all_checks(settings)]


@contextlib.asynccontextmanager
async def _application(
    runtime: Runtime, what: Served, door: Serving, closing: asyncio.Event
) -> AsyncIterator[tuple[Starlette, str, Door | None]]:
    """Open the application; yield it, the names of its parts, and the API's state (None if it serves only hooks)."""
    from ..http.access import Access

    async with (
        Access.read().following(runtime.log) as access,
        _parts(runtime, what, door, closing, access) as parts,
    ):
        yield parts


@contextlib.asynccontextmanager
async def _parts(
    runtime: Runtime, what: Served, door: Serving, closing: asyncio.Event, access: Access
) -> AsyncIterator[tuple[Starlette, str, Door | None]]:
    from ..http.app import application, health_routes, hook_routes

    parts, names = [health_routes(runtime.log)], []
    if what.hooks:
        from ..http.hooks import load_hooks

        found = load_hooks(runtime)
        parts.append(hook_routes(runtime, found, access))
        names.append(_named(list(found)))
    if not (what.api or what.protocols):
        yield application(*parts), " and ".join(names), None
        return
    from ..console.app import console_app, console_door
    from ..console.serving import shielded
    from .protocols import protocol_routes

    api = console_door(runtime, _api_options(what, door), access)
    async with protocol_routes(
        what.protocols, runtime, api.identity, executor=what.executor, closing=closing
    ) as routes:
        parts.append([*shielded(routes, api)])
        if what.protocols:
            many = "s" if len(what.protocols) > 1 else ""
            names.append(f"the protocol{many} {', '.join(what.protocols)}")
        if what.api:
            names.append("the console" if what.console else "the API")
        yield console_app(api, *parts) if what.api else application(*parts), " and ".join(names), api


def _api_options(what: Served, door: Serving) -> ApiOptions:
    from ..console.options import ApiOptions

    return ApiOptions(
        host=door.host,
        no_auth=door.no_auth,
        read_only=door.read_only,
        console=what.console,
        base_path=door.base_path,
        allow_hosts=tuple(door.allow_host),
        allow_origins=tuple(door.allow_origin),
        trust_proxies=tuple(door.trust_proxy),
        user_header=door.user_header,
        role_header=door.role_header,
        protocols=what.protocols,
        executor="local" if what.console and what.registry is not None else "durable",
    )


def _tell_access(screen: Any, api: Door, address: str, *, opens: bool) -> None:
    """Print who may call, and where a browser signs in."""
    from ..http.server import is_loopback

    options = api.options
    url = f"{address}/"
    if options.no_auth:
        screen.tell(("everybody who reaches this address may do everything (--no-auth)", "red"))
    elif options.console and is_loopback(options.host):
        url = f"{address}/#k={api.identity.one_time_key()}"
        screen.tell(f"open {url} within a minute; it signs one browser in")
    elif api.identity.access.is_empty:
        screen.tell(("there is no token yet: foldlog tokens issue NAME --role operator", "yellow"))
    if opens:
        import webbrowser

        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(url)


def _named(names: list[str]) -> str:
    """Return the names of the hooks; if there are many, the first ones and the number of others."""
    if not names:
        return "callbacks and signals, and no webhook"
    more = len(names) - NAMES_MAX
    told = ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"the webhook{'s' if len(names) > 1 else ''} {told}"
