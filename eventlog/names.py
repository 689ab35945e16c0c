"""Names and where they lie: run ids, shards, and the rules for what may be a name."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from .clock import Clock
from .errors import ConfigError
from .ports import Subject

SHARDS_MAX = 256
SNAPSHOTS_SUFFIX = "_snapshots"
"""What the names of streams end in that hold no more than a cache."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_SHARD_PREFIX = re.compile(r"([0-9a-f]{2})-[0-9a-z]{21}")
_Kind = Literal["run", "lane", "key", "breaker", "slots"]


def check_name(what: str, name: object) -> str:
    """Return `name` if it is 1 to 64 of letters, digits, `_`, `-`. Raises `ConfigError` that says `what` is wrong."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise ConfigError(f"{what} {name!r} must be 1 to 64 letters, digits, '_' or '-'")
    return name


def digest_of(*parts: str) -> str:
    """SHA-256 (hex) over the parts, each preceded by its length so that no two lists collide."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode()
        sha.update(b"%d:" % len(data) + data)
    return sha.hexdigest()


def shard_of(key: str, shards: int) -> int:
    """The shard of a lane, an idempotency key or a run id chosen by a caller."""
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) % shards


def new_run_id(shard: int, clock: Clock) -> str:
    """A fresh run id: two hex digits of shard, `-`, an id of the clock."""
    return f"{shard:02x}-{clock.new_id()}"


def child_run_id(parent: str, tool_call_id: str, ordinal: int) -> str:
    """The id of a call's n-th child: the same when the call runs again."""
    return f"{parent[:24]}_{digest_of(parent, tool_call_id, str(ordinal))[:24]}"


def shard_in(run_id: str) -> int | None:
    """The shard that a generated run id (or that of its child) carries; None for an id that a caller chose."""
    match = _SHARD_PREFIX.match(run_id)
    return int(match[1], 16) if match else None


def run_subject(shard: int, root: str, run: str) -> Subject:
    """The subject of a run."""
    return Subject(shard, "run", root, run)


def lane_subject(lane: str, shards: int) -> Subject:
    """The subject of a lane; the lane's name itself may be any text."""
    key = digest_of(lane)[:32]
    return Subject(shard_of(lane, shards), "lane", "", key)


def key_subject(key: str, shards: int) -> Subject:
    """The subject that says whose an idempotency key is; the key itself may be any text."""
    return Subject(shard_of(key, shards), "key", "", digest_of(key)[:32])


def breaker_subject(name: str, shards: int) -> Subject:
    """The subject of a circuit breaker; its name may be any text."""
    return Subject(shard_of(name, shards), "breaker", "", digest_of(name)[:32])


def slots_subject(name: str, shards: int) -> Subject:
    """The subject that says who holds the slots of this name and who waits for one; the name may be any text."""
    return Subject(shard_of(name, shards), "slots", "", digest_of(name)[:32])


def subject_token(subject: Subject) -> str:
    """The subject as dotted text, without namespace and shard: `run.<root>.<run>`, else its kind and id."""
    return f"run.{subject.root}.{subject.id}" if subject.kind == "run" else f"{subject.kind}.{subject.id}"


def parse_subject_token(shard: int, token: str) -> Subject:
    """The reverse of `subject_token`. Raises `ValueError` for anything else."""
    match token.split("."):
        case ["run", root, run]:
            return Subject(shard, "run", root, run)
        case ["lane" | "key" | "breaker" | "slots" as kind, name]:
            kinds: dict[str, _Kind] = {"lane": "lane", "key": "key", "breaker": "breaker", "slots": "slots"}
            return Subject(shard, kinds[kind], "", name)
        case _:
            raise ValueError(f"not a subject of the log: {token!r}")
