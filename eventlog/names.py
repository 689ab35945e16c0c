"""Names: run ids and the shards in them, subjects, and the syntax of valid names."""

from __future__ import annotations

import hashlib
import re
from typing import get_args

from .clock import Clock
from .errors import ConfigError
from .ports import RegisterKind, Subject

SHARDS_MAX = 256
SNAPSHOTS_SUFFIX = "_snapshots"
"""The suffix of the names of streams that are only a cache."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
"""What a caller tells of its trace (W3C): its id, and that of the span that has called."""
_SHARD_PREFIX = re.compile(r"([0-9a-f]{2})-[0-9a-z]{21}")
_REGISTERS: dict[str, RegisterKind] = {kind: kind for kind in get_args(RegisterKind)}


def check_name(what: str, name: object) -> str:
    """Return `name` if it is 1 to 64 letters, digits, `_` or `-`. Raises `ConfigError` that names `what`."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise ConfigError(f"{what} {name!r:.80} must be 1 to 64 letters, digits, '_' or '-'")
    return name


def digest_of(*parts: str) -> str:
    """Return the SHA-256 (hex) of the parts, each preceded by its length so that no two lists collide."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode()
        sha.update(b"%d:" % len(data) + data)
    return sha.hexdigest()


def shard_of(key: str, shards: int) -> int:
    """Return the shard of a lane, an idempotency key or a run id chosen by a caller."""
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) % shards


def new_run_id(shard: int, clock: Clock) -> str:
    """Return a new run id: the shard as two hex digits, `-`, and an id of the clock."""
    return f"{shard:02x}-{clock.new_id()}"


def child_run_id(parent: str, tool_call_id: str, ordinal: int) -> str:
    """Return the id of a call's n-th child; it is the same if the call is repeated."""
    return f"{parent[:24]}_{digest_of(parent, tool_call_id, str(ordinal))[:24]}"


def shard_in(run_id: str) -> int | None:
    """Return the shard in a generated run id (or in that of a child); None for an id that a caller chose."""
    match = _SHARD_PREFIX.match(run_id)
    return int(match[1], 16) if match else None


def run_subject(shard: int, root: str, run: str) -> Subject:
    """Return the subject of a run."""
    return Subject(shard, "run", root, run)


def lane_name(lane: str | None) -> str | None:
    """Return the name of a stored lane within its session; null for the one without a name, and without a lane."""
    kind, _, rest = (lane or "").partition(":")
    return rest.partition(":")[0] if kind == "lane" else None


def lane_subject(lane: str, shards: int) -> Subject:
    """Return the subject of a lane, whose name may be any text."""
    key = digest_of(lane)[:32]
    return Subject(shard_of(lane, shards), "lane", "", key)


def key_subject(key: str, shards: int) -> Subject:
    """Return the subject that records the run of an idempotency key, which may be any text."""
    return Subject(shard_of(key, shards), "key", "", digest_of(key)[:32])


def breaker_subject(name: str, shards: int) -> Subject:
    """Return the subject of a circuit breaker, whose name may be any text."""
    return Subject(shard_of(name, shards), "breaker", "", digest_of(name)[:32])


def slots_subject(name: str, shards: int) -> Subject:
    """Return the subject that records the holders and waiters of the slots of a name, which may be any text."""
    return Subject(shard_of(name, shards), "slots", "", digest_of(name)[:32])


def policy_subject(shards: int) -> Subject:
    """Return the subject that records the calls which operators approved for good."""
    return Subject(shard_of("policy", shards), "policy", "", digest_of("policy")[:32])


def schedule_subject(name: str, shards: int) -> Subject:
    """Return the subject of a schedule, whose name may be any text."""
    return Subject(shard_of(f"schedule:{name}", shards), "sched", "", digest_of(name)[:32])


def once_subject(scope: str, key: str, shards: int) -> Subject:
    """Return the subject that records the call which owns a key in a scope; both may be any text."""
    name = digest_of(scope, key)
    return Subject(shard_of(name, shards), "once", "", name[:32])


def access_subject(shards: int) -> Subject:
    """Return the subject that records who was given a token of the HTTP API, and from whom it was taken."""
    return Subject(shard_of("access", shards), "access", "", digest_of("access")[:32])


def answer_subject(actor: str, key: str, shards: int) -> Subject:
    """Return the subject that records the answer to an actor's request with an idempotency key, both any text."""
    name = digest_of(actor, key)
    return Subject(shard_of(name, shards), "answer", "", name[:32])


def agents_subject(shards: int) -> Subject:
    """Return the subject that records all versions of the stored agents."""
    return Subject(shard_of("agents", shards), "agent", "", digest_of("agents")[:32])


def plan_subject(name: str, shards: int) -> Subject:
    """Return the subject that records all versions of a standing plan."""
    return Subject(shard_of(f"plan:{name}", shards), "plan", "", digest_of(name)[:32])


def budget_subject(shard: int, name: str) -> Subject:
    """Return the subject that records what the runs of a shard have spent of a budget."""
    return Subject(shard, "budget", "", digest_of(name)[:32])


def hook_subject(shard: int, name: str) -> Subject:
    """Return the subject that records how far a hook has followed a shard."""
    return Subject(shard, "hook", "", digest_of(name)[:32])


def subject_token(subject: Subject) -> str:
    """Return the subject as dotted text without namespace and shard: `run.<root>.<run>`, or its kind and id."""
    return f"run.{subject.root}.{subject.id}" if subject.kind == "run" else f"{subject.kind}.{subject.id}"


def parse_subject_token(shard: int, token: str) -> Subject:
    """Parse the text of `subject_token`. Raises `ValueError` for anything else."""
    match token.split("."):
        case ["run", root, run]:
            return Subject(shard, "run", root, run)
        case [kind, name] if kind in _REGISTERS:
            return Subject(shard, _REGISTERS[kind], "", name)
        case _:
            raise ValueError(f"not a subject of the log: {token!r}")


def trace_id_of(root: str, traceparent: str = "") -> str:
    """Return the trace id of a run: that of its traceparent, else 16 bytes of the SHA-256 of its root's id, in hex."""
    given = TRACEPARENT.fullmatch(traceparent)
    return given[1] if given else hashlib.sha256(root.encode()).hexdigest()[:32]
