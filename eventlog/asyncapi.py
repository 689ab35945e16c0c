"""The log as an AsyncAPI 3 document: every subject of a namespace, and the content of its messages.

Addresses are made by the code that makes the subjects, with names in the place of ids, and schemas from the structs
that are stored, so that the document cannot say something else than the log does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, get_args

import msgspec

from .jetstream.layout import Layout
from .ports import DraftPiece, Lease, Presence, RegisterKind, Subject, Timer, Wakeup
from .schema import commit_schema

_SHARD = 0
_NAMES = {
    "NAMESPACE": ("namespace", "The namespace of the log."),
    "ROOT": ("root", "The run at the top of the family."),
    "RUN": ("run", "The run."),
    "AGENT": ("agent", "The agent of the run."),
    "WORKER": ("worker", "The name of a worker, or of a program that drives runs."),
    "DIGEST": ("digest", "SHA-256 (hex) of the whole content."),
    "ID": ("id", "The register: the first 32 hex digits of a SHA-256 of its name."),
    "STREAM": ("stream", "The name of a stream."),
}
_SHARD_NAME = ("shard", "The shard, two hex digits.")
_EPOCH, _INDEX, _COUNT = 41, 42, 43
_NUMBERS = {
    str(_EPOCH): ("epoch", "The epoch of the claim."),
    str(_INDEX): ("index", "The number of the chunk, from 0."),
    str(_COUNT): ("count", "The number of chunks."),
}
_TIMER_ID = ("timer", "The timer of the run: the first 32 hex digits of a SHA-256 of its id.")
_BYTES = "application/octet-stream"
_JSON = "application/json"
_REGISTERS: dict[str, str] = {
    "lane": "the queue of a lane",
    "key": "the run of an idempotency key",
    "breaker": "the state of a circuit breaker",
    "slots": "the holders of slots, and the runs that wait for one",
    "policy": "the calls that operators approved for good",
    "sched": "the state of a schedule",
    "once": "the call that owns a key in a scope",
    "hook": "how far a hook on the ends of runs has followed a shard",
    "agent": "the versions of stored agents: saved and removed",
    "plan": "the versions of a standing plan",
    "budget": "what the runs of a shard have spent of a budget",
    "access": "the tokens of the HTTP API: granted and withdrawn",
    "answer": "what was answered to a request with an idempotency key",
}


class _Channel(NamedTuple):
    """A subject, the stream that keeps it (none for core NATS), and its message."""

    name: str
    subject: bytes
    stream: str
    message: str
    summary: str


def asyncapi_document(version: str) -> dict[str, Any]:
    """Return the document. `version` is that of foldlog."""
    channels = list(_channels(Layout("NAMESPACE")))
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "foldlog",
            "version": version,
            "description": "The log of agent runs in NATS. Readers need the `commit` channels; the others are said "
            "for completeness. Writing by hand is not supported: every append has a condition.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": _JSON,
        "servers": {"nats": {"host": "127.0.0.1:4222", "protocol": "nats"}},
        "channels": {each.name: _channel(each) for each in channels},
        "operations": {
            f"receive_{each.name}": {
                "action": "receive",
                "channel": {"$ref": f"#/channels/{each.name}"},
                "summary": each.summary,
            }
            for each in channels
        },
        "components": {"messages": dict(_messages()), "schemas": _schemas()},
    }


def channel_of(document: dict[str, Any], subject: str) -> str | None:
    """Return the name of the channel that a subject belongs to; null if the document has none."""
    for name, channel in document["channels"].items():
        pattern = re.sub(r"\\{[a-z]+\\}", r"[^.]+", re.escape(channel["address"]))
        if re.fullmatch(pattern, subject):
            return str(name)
    return None


def _channels(layout: Layout) -> Iterator[_Channel]:
    run = Subject(_SHARD, "run", "ROOT", "RUN")
    wakeup = Wakeup(shard=_SHARD, agent="AGENT", root="ROOT", run="RUN")
    shard = layout.shard(_SHARD)
    commits = layout.subject(run)
    yield _Channel("runs", commits, shard, "commit", "the commits of a run")
    yield _Channel("live", b"live." + commits, "", "commit", "the commits of runs, as they are stored")
    yield _Channel("over", layout.over(run), "", "position", "the position of the commit that ends a run")
    for kind in get_args(RegisterKind):
        subject = layout.subject(Subject(_SHARD, kind, "", "ID"))
        yield _Channel(kind, subject, shard, "commit", _REGISTERS[kind])
    yield _Channel("wake", layout.wake(wakeup), shard, "wakeup", "an obligation to look at a run")
    yield _Channel("due", layout.due(wakeup), shard, "wakeup", "the same, sent by a timer")
    timer = layout.timer(Timer(id="id", due_at=0.0, wakeup=wakeup))
    yield _Channel("timer", timer, shard, "timer", "a schedule of the server, which becomes a wake-up")
    yield _Channel("mark", layout.mark(_SHARD), shard, "empty", "before a schedule that is stored alone")
    yield _Channel(
        "drafts", layout.draft("ROOT", "RUN"), layout.drafts, "draft", "text that is being written"
    )
    yield _Channel("drafts_mark", layout.drafts_mark, layout.drafts, "empty", "asked by readers of drafts")
    lease = layout.lease_of("RUN", "WORKER", _EPOCH)
    yield _Channel("lease", lease, layout.leases, "lease", "who drives a run; empty once it is released")
    here = layout.present("WORKER")
    yield _Channel("here", here, layout.leases, "presence", "a worker is running; empty once it left")
    yield _Channel(
        "alive", layout.alive("WORKER"), "", "empty", "answers while the worker's connection lives"
    )
    yield _Channel("died", layout.died, "", "lease", "a lease whose worker is gone")
    chunk = layout.chunk("ROOT", "DIGEST", _INDEX, _COUNT)
    yield _Channel("artifacts", chunk, layout.artifacts, "bytes", "a chunk of an artifact of a family")
    yield _Channel("seals", layout.seal(_SHARD), layout.artifacts, "json", "the seals of a shard")
    loss = layout.loss("STREAM")
    yield _Channel("losses", loss, layout.artifacts, "json", "positions whose loss an operator accepted")
    gone = layout.removed("STREAM")
    yield _Channel("removals", gone, layout.artifacts, "json", "positions that foldlog is about to remove")
    cached = layout.snapshot("RUN", "DIGEST", _INDEX, _COUNT)
    yield _Channel("snapshots", cached, layout.snapshots, "bytes", "a chunk of a cached state of a run")


def _channel(channel: _Channel) -> dict[str, Any]:
    tokens = [_named(token, channel) for token in channel.subject.decode().split(".")]
    kept = f" Kept in stream {_stream(channel.stream)}." if channel.stream else " Not kept in a stream."
    return {
        "address": ".".join(f"{{{found[0]}}}" if found else token for token, found in tokens),
        "title": channel.name,
        "description": f"{channel.summary[0].upper()}{channel.summary[1:]}.{kept}",
        "parameters": {found[0]: {"description": found[1]} for _, found in tokens if found},
        "messages": {channel.message: {"$ref": f"#/components/messages/{channel.message}"}},
    }


def _named(token: str, channel: _Channel) -> tuple[str, tuple[str, str] | None]:
    """Return a token of a subject with the parameter in its place, if it has one."""
    if token == f"{_SHARD:02x}":
        return token, _SHARD_NAME
    if channel.name == "timer" and re.fullmatch(r"[0-9a-f]{32}", token):
        return token, _TIMER_ID
    return token, _NAMES.get(token) or _NUMBERS.get(token)


def _stream(name: str) -> str:
    return f"`{name.replace('NAMESPACE', '<namespace>').replace(f'_{_SHARD:02x}', '_<shard>')}`"


def _messages() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, schema, summary in (
        ("commit", "Commit", "Events of a run or a register, appended at once."),
        ("wakeup", "Wakeup", "Acknowledged once the run was looked at."),
        (
            "timer",
            "Wakeup",
            "Its headers `Nats-Schedule` and `Nats-Schedule-Target` say when and where it is sent.",
        ),
        ("draft", "DraftPiece", "Lost pieces are not sent again; the stored text corrects them."),
        ("lease", "Lease", "A hint; the claim is in the run."),
        ("presence", "Presence", "How the process announced itself."),
    ):
        payload = {"$ref": f"#/components/schemas/{schema}"}
        yield name, {"name": name, "contentType": _JSON, "summary": summary, "payload": payload}
    yield "json", {"name": "json", "contentType": _JSON, "payload": {}}
    yield "bytes", {"name": "bytes", "contentType": _BYTES, "payload": {"type": "string", "format": "binary"}}
    yield "empty", {"name": "empty", "contentType": _BYTES, "payload": {"type": "string", "maxLength": 0}}
    yield (
        "position",
        {
            "name": "position",
            "contentType": "text/plain",
            "payload": {"type": "string", "pattern": "^[0-9]+$"},
        },
    )


def _schemas() -> dict[str, Any]:
    commit = commit_schema()
    definitions = commit.pop("$defs")
    _, others = msgspec.json.schema_components(
        [Wakeup, DraftPiece, Lease, Presence], ref_template="#/$defs/{name}"
    )
    return {name: _moved(each) for name, each in {"Commit": commit, **definitions, **others}.items()}


def _moved(schema: Any) -> Any:
    """Return a schema whose references lead to the components of the document."""
    if isinstance(schema, dict):
        kept: Iterable[tuple[str, Any]] = ((k, v) for k, v in schema.items() if k != "$schema")
        return {key: _moved(value) for key, value in kept}
    if isinstance(schema, list):
        return [_moved(each) for each in schema]
    if isinstance(schema, str) and schema.startswith("#/$defs/"):
        return schema.replace("#/$defs/", "#/components/schemas/", 1)
    return schema
