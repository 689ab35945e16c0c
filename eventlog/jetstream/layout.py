"""The layout of a log in JetStream: the names of streams and subjects, and the streams' configurations.

A shard is one stream, because an atomic batch must be within one: commits (`run.<root>.<run>`, `lane.<id>`, `key.<id>`,
`breaker.<id>`, `slots.<id>`, `sched.<id>`), wake-ups (`wake.<queue>.<run>`), the schedules of timers
(`timer.<run>.<id>`) and the wake-ups that they become (`due.<queue>.<run>`), all below `fl.<namespace>.<shard>`.
Commits of runs are republished on `live.fl...` for followers. Leases and drafts are in memory streams, artifacts,
snapshots and wrapped keys in separate file streams.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..names import SHARDS_MAX, SNAPSHOTS_SUFFIX, check_name, digest_of, parse_subject_token, subject_token
from ..ports import Family, Lease, RegisterKind, Selector, Shard, Subject, Timer, Wakeup
from ..priorities import Priority, priority_of

SHARDS_KEY = "foldlog.shards"
ANY_ROOT = "*"
"""The wildcard for a family."""
EVERY_QUEUE = "*"
"""The wildcard for a queue of wake-ups."""
RESTORING_KEY = "foldlog.restoring"
"""The metadata of a stream that is being restored from a backup: the gate by which alone it takes messages."""
DRAFT_KEPT_S = 120
DRAFT_BYTES_MAX = 64 * 1024 * 1024
UNHEARD = "the death of a worker is noticed only when its lease expires"
"""The consequence if the server denies a subscription to `died`."""

_S = 1_000_000_000  # JetStream counts durations in nanoseconds


def queue_of(agent: str, priority: Priority) -> str:
    """Return the token of the queue, and the name of the consumer, of an agent's wake-ups of a priority (W64).

    It is the agent's name, or `name=urgent` and `name=background`: no name has an equals sign. Raises `ConfigError`.
    """
    name = check_name("the agent", agent)
    return name if priority == "normal" else f"{name}={priority}"


def priority_in(queue: str) -> Priority:
    """Return the priority of a queue's wake-ups."""
    return priority_of(queue.partition("=")[2] or "normal")


class Layout:
    """The names of one namespace. Raises `ConfigError` for invalid names; subjects are bytes, as on the wire."""

    def __init__(self, namespace: str) -> None:
        self.namespace = check_name("the namespace", namespace)
        self.leases = f"FL_{namespace}_leases"
        self.drafts = f"FL_{namespace}_drafts"
        self.artifacts = f"FL_{namespace}_artifacts"
        self.snapshots = f"FL_{namespace}{SNAPSHOTS_SUFFIX}"
        self.keys = f"FL_{namespace}_keys"
        self.died = f"died.{namespace}".encode()
        self.gone = f"$JS.EVENT.ADVISORY.CONSUMER.DELETED.{self.leases}.*".encode()
        self.subject = lru_cache(maxsize=16_384)(self._subject)
        self.parse = lru_cache(maxsize=1024)(self._parse)
        self.draft = lru_cache(maxsize=1024)(self._draft)

    def inbox(self, role: str) -> bytes:
        """Return the prefix of reply subjects. Raises `ConfigError` for an invalid role."""
        return f"_INBOX.{self.namespace}.{check_name('the role', role)}".encode()

    def shard(self, shard: int) -> str:
        """Return the name of a shard's stream. Raises `ValueError` for an invalid number."""
        if not 0 <= shard < SHARDS_MAX:
            raise ValueError(f"there is no shard {shard}")
        return f"FL_{self.namespace}_{shard:02x}"

    def prefix(self, shard: int) -> str:
        """Return the prefix of all subjects of a shard."""
        return f"fl.{self.namespace}.{shard:02x}"

    def _subject(self, subject: Subject) -> bytes:
        check_name("the id", subject.id)
        if subject.kind == "run":
            check_name("the root's id", subject.root)
        return f"{self.prefix(subject.shard)}.{subject_token(subject)}".encode()

    def selected(self, selector: Selector) -> bytes:
        """Return the subject, perhaps with wildcards, that matches what the selector selects."""
        match selector:
            case Subject():
                return self.subject(selector)
            case Family(shard, root):
                return f"{self.prefix(shard)}.run.{check_name('the root', root)}.*".encode()
            case Shard(shard):
                return f"{self.prefix(shard)}.run.>".encode()

    def registers(self, shard: int, kind: RegisterKind) -> bytes:
        """Return the subject that matches all registers of a kind."""
        return f"{self.prefix(shard)}.{kind}.*".encode()

    def over(self, subject: Subject) -> bytes:
        """Return the subject on which the end of a run is announced."""
        self.subject(subject)  # checks the names
        return f"live.{self.prefix(subject.shard)}.over.{subject.root}.{subject.id}".encode()

    def _parse(self, shard: int, subject: bytes) -> Subject:
        """Return the log subject of a NATS subject. Raises `ValueError` for any other NATS subject."""
        return parse_subject_token(shard, subject.decode().partition(f"{self.prefix(shard)}.")[2])

    def any_root(self, shard: int, run: str) -> bytes:
        """Return the subject that matches a run with any root."""
        return f"{self.prefix(shard)}.run.*.{check_name('the run', run)}".encode()

    def wake(self, wakeup: Wakeup) -> bytes:
        """Return the subject of a wake-up."""
        return self._of_agent("wake", wakeup)

    def due(self, wakeup: Wakeup) -> bytes:
        """Return the subject to which a timer sends its wake-up."""
        return self._of_agent("due", wakeup)

    def _of_agent(self, kind: str, wakeup: Wakeup) -> bytes:
        queue, run = queue_of(wakeup.agent, wakeup.priority), check_name("the run", wakeup.run)
        return f"{self.prefix(wakeup.shard)}.{kind}.{queue}.{run}".encode()

    def timer(self, timer: Timer) -> bytes:
        """Return the subject of a timer's schedule. The timer's id may be any text."""
        wakeup = timer.wakeup
        run = check_name("the run", wakeup.run)
        return f"{self.prefix(wakeup.shard)}.timer.{run}.{digest_of(timer.id)[:32]}".encode()

    def timers_named(self, shard: int, timer_id: str) -> bytes:
        """Return the subject that matches the timers with this id of all runs."""
        return f"{self.prefix(shard)}.timer.*.{digest_of(timer_id)[:32]}".encode()

    def everything(self, shard: int) -> bytes:
        """Return the subject that matches all messages of a shard."""
        return f"{self.prefix(shard)}.>".encode()

    def seal(self, shard: int) -> bytes:
        """Return the subject of a shard's seals."""
        return f"artifact.{self.namespace}.seal.{shard:02x}".encode()

    def acknowledged(self, shard: int, queue: str) -> tuple[bytes, bytes]:
        """Return the subjects of a queue's wake-ups, sent at once and by timers; `EVERY_QUEUE` for those of all."""
        prefix = self.prefix(shard)
        return f"{prefix}.wake.{queue}.*".encode(), f"{prefix}.due.{queue}.*".encode()

    def loss(self, stream: str) -> bytes:
        """Return the subject of the accepted losses of a stream."""
        return f"artifact.{self.namespace}.loss.{stream}".encode()

    def removed(self, stream: str) -> bytes:
        """Return the subject of the notes on what foldlog has removed from a stream."""
        return f"artifact.{self.namespace}.gone.{stream}".encode()

    @property
    def all_artifacts(self) -> bytes:
        """The subject that matches everything in the artifacts' stream."""
        return f"artifact.{self.namespace}.>".encode()

    def mark(self, shard: int) -> bytes:
        """Return the subject of the mark before a schedule that is stored alone."""
        return f"{self.prefix(shard)}.mark".encode()

    def lease(self, lease: Lease) -> bytes:
        """Return the subject of a lease."""
        return self.lease_of(lease.run, lease.worker, lease.epoch)

    def lease_of(self, run: str, worker: str, epoch: int) -> bytes:
        """Return the subject of the lease of a worker on a run in an epoch."""
        return f"{self.leases_prefix(worker)}.run.{check_name('the run', run)}.{epoch}".encode()

    def present(self, worker: str) -> bytes:
        """Return the subject with the agents that a worker serves; it is emptied when the worker leaves."""
        return f"{self.leases_prefix(worker)}.here".encode()

    @property
    def everybody_present(self) -> bytes:
        """The subject that matches `present` of all workers."""
        return f"lease.{self.namespace}.*.here".encode()

    @property
    def every_lease(self) -> bytes:
        """The subject that matches `lease` of all workers."""
        return f"lease.{self.namespace}.*.run.>".encode()

    def leases_prefix(self, worker: str) -> str:
        """Return the prefix of all subjects of a worker."""
        return f"lease.{self.namespace}.{check_name('the worker', worker)}"

    def alive(self, worker: str) -> bytes:
        """Return the subject on which a present worker replies."""
        return f"alive.{self.namespace}.{check_name('the worker', worker)}".encode()

    def _draft(self, root: str, run: str) -> bytes:
        """Return the subject of a run's drafts."""
        return f"draft.{self.namespace}.{check_name('the root', root)}.{check_name('the run', run)}".encode()

    @property
    def drafts_mark(self) -> bytes:
        """A subject of the drafts' stream that does not belong to any family."""
        return f"draft.{self.namespace}.mark".encode()

    def drafts_of(self, root: str) -> bytes:
        """Return the subject that matches the drafts of a family."""
        return f"draft.{self.namespace}.{check_name('the root', root)}.*".encode()

    def chunk(self, root: str, digest: str, index: int, count: int) -> bytes:
        """Return the subject of a chunk of an artifact of a family."""
        return f"{self._artifact(root)}.{digest}.{count}.{index}".encode()

    def chunks_of(self, root: str, digest: str) -> bytes:
        """Return the subject that matches the chunks of an artifact; `ANY_ROOT` for that of any family."""
        return f"{self._artifact(root)}.{check_name('the digest', digest)}.*.*".encode()

    def artifacts_of(self, root: str) -> bytes:
        """Return the subject that matches all artifacts of a family, but no seals and notes."""
        return f"{self._artifact(root)}.*.*.*".encode()

    def _artifact(self, root: str) -> str:
        return f"artifact.{self.namespace}.{root if root == ANY_ROOT else check_name('the root', root)}"

    def snapshot(self, run: str, digest: str, index: int, count: int) -> bytes:
        """Return the subject of a chunk of a run's snapshot."""
        return f"snapshot.{self.namespace}.{check_name('the run', run)}.{digest}.{count}.{index}".encode()

    def snapshots_of(self, run: str) -> bytes:
        """Return the subject that matches all chunks of a run's snapshots."""
        return f"snapshot.{self.namespace}.{check_name('the run', run)}.>".encode()

    def key(self, name: str) -> bytes:
        """Return the subject of the wrapped keys of an owner; `*` for those of all."""
        return f"sealkey.{self.namespace}.{name if name == '*' else check_name('the key', name)}".encode()

    # ---- configurations, as the API of JetStream takes them

    def shard_config(self, shard: int, shards: int, replicas: int) -> dict[str, Any]:
        """Return the configuration of a shard's stream."""
        prefix = self.prefix(shard)
        return {
            "name": self.shard(shard),
            "subjects": [f"{prefix}.>"],
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "num_replicas": replicas,
            "allow_direct": True,
            "allow_atomic": True,
            "allow_msg_schedules": True,
            "republish": {"src": f"{prefix}.run.>", "dest": f"live.{prefix}.run.>"},
            "metadata": {SHARDS_KEY: str(shards)},
        }

    def artifacts_config(self, shards: int, replicas: int) -> dict[str, Any]:
        """Return the configuration of the artifacts' stream, with the number of shards in case all of them are lost."""
        config = _bytes_config(self.artifacts, f"artifact.{self.namespace}.>", replicas)
        return {**config, "metadata": {SHARDS_KEY: str(shards)}}

    def snapshots_config(self, replicas: int) -> dict[str, Any]:
        """Return the configuration of the snapshots' stream, with the replicas of the log, to be as available."""
        return _bytes_config(self.snapshots, f"snapshot.{self.namespace}.>", replicas)

    def keys_config(self, replicas: int) -> dict[str, Any]:
        """Return the configuration of the stream of wrapped keys, with the replicas of the log."""
        return _bytes_config(self.keys, f"sealkey.{self.namespace}.>", replicas)

    def leases_config(self, replicas: int) -> dict[str, Any]:
        """Return the configuration of the leases' stream: the last message of each lease, with a time to live."""
        return {
            "name": self.leases,
            "subjects": [f"lease.{self.namespace}.>"],
            "storage": "memory",
            "retention": "limits",
            "discard": "old",
            "max_msgs_per_subject": 1,
            "num_replicas": replicas,
            "allow_direct": True,
            "allow_msg_ttl": True,
        }

    def drafts_config(self) -> dict[str, Any]:
        """Return the configuration of the drafts' stream: not replicated, because drafts may be lost."""
        return {
            "name": self.drafts,
            "subjects": [f"draft.{self.namespace}.>"],
            "storage": "memory",
            "retention": "limits",
            "discard": "old",
            "max_age": DRAFT_KEPT_S * _S,
            "max_bytes": DRAFT_BYTES_MAX,
            "num_replicas": 1,
            "allow_direct": True,
        }

    def consumer_config(self, shard: int, queue: str, ack_wait_s: float) -> dict[str, Any]:
        """Return the configuration of the shared consumer of a queue of wake-ups in a shard (W16)."""
        prefix = self.prefix(shard)
        return {
            "name": queue,
            "durable_name": queue,
            "filter_subjects": [f"{prefix}.wake.{queue}.>", f"{prefix}.due.{queue}.>"],
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": int(ack_wait_s * _S),
            "max_deliver": -1,
            "max_ack_pending": -1,
            "max_waiting": 8192,
        }

    def presence_config(self, worker: str, gone_after_s: float) -> dict[str, Any]:
        """Return the configuration of a consumer that the server deletes soon after its worker disconnects."""
        return {
            "name": worker,
            "deliver_subject": self.alive(worker).decode(),
            "filter_subject": f"{self.leases_prefix(worker)}.nothing",
            "deliver_policy": "new",
            "ack_policy": "none",
            "inactive_threshold": int(gone_after_s * _S),
            "mem_storage": True,
            "num_replicas": 1,
        }


def _bytes_config(name: str, subjects: str, replicas: int) -> dict[str, Any]:
    return {
        "name": name,
        "subjects": [subjects],
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "num_replicas": replicas,
        "allow_direct": True,
    }
