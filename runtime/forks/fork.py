"""Forks: a run that shares another run's history up to a revision, and goes on live from there.

What is shared is copied into the fork's own family (`family`), so that the fork can be folded, checked and exported on
its own; `submitted.fork` says where it came from. The original is read from a log or from an archive.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from ...eventlog.commits import Chain
from ...eventlog.errors import ConfigError, RunNotFound
from ...eventlog.events import PROGRAM, ForkLink, ForkTools, Submitted, Trigger
from ...eventlog.offload import restore
from ...eventlog.parts import Part
from ...eventlog.ports import Artifacts, FamilyArtifacts, Log, Selector, Stored, Subject
from ...eventlog.ports import Family as FamilyOf
from ...eventlog.sealing.log import over
from ...projections.fold import apply
from ...projections.messages import canonical_json, sha256_hex
from ...projections.run_state import RunState
from ..agents.content import GivenContent, read_content, read_message
from ..agents.kinds import runnable_of
from ..agents.registry import Registry
from ..core.commands import Inject
from ..core.lineage import given_model, with_model
from ..core.rules import rules_of
from ..core.submission import check_text, check_trigger, uncounted, with_text
from ..ports.archives import StoredRuns
from ..ports.files import Content
from .family import Ancestor, Ancestors, Opening, share
from .history import check, has_begun
from .nodes import has_node
from .operations import has_operation

POLICIES: tuple[ForkTools, ...] = ("replay", "ask", "run")


class Origin(msgspec.Struct, frozen=True):
    """The run to fork after revision `at`, and all runs below it."""

    family: dict[str, Ancestor]
    at: int

    @property
    def run(self) -> Ancestor:
        """The run itself."""
        return next(iter(self.family.values()))

    @property
    def submitted(self) -> Submitted:
        """The event that opened it."""
        first = self.run.submitted
        assert first is not None  # noqa: S101 - checked when it was read
        return first

    @property
    def state(self) -> RunState:
        """The run's state as stored by now."""
        state = RunState(run=self.run.subject.id, root=self.run.subject.root, path=self.run.path)
        for event in self.run.history:
            apply(state, event, 0.0)
        return state


class ForkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between a fork and its original."""

    model: str | None = None
    input: str | None = None
    parts: tuple[Part, ...] = ()
    """The whole input, if it is more than one text."""
    tools: ForkTools = "ask"
    executor: str = "local"
    trigger: Trigger = PROGRAM


async def read_origin(log: Log, subject: Subject, at: int) -> Origin:
    """Return the run as stored by now. Raises `ConfigError` for a revision that cannot be forked, `LogCorrupted`."""
    selector: Selector = FamilyOf(subject.shard, subject.root)
    return await _origin(log.events.read(selector), log.artifacts.of(subject.root), subject.id, at)


async def read_archived(archive: StoredRuns, run: str, at: int, log: Log) -> Origin:
    """Return the run as an archive holds it; large values that the archive lacks are read from the log.

    Raises `RunNotFound`, `ConfigError` for a revision that cannot be forked or a missing large value,
    `LogCorrupted`.
    """
    roots = {stored.subject.root for stored in archive.stored if stored.subject.id == run}
    if not roots:
        raise RunNotFound(f"no run {run!r} in the file")

    async def commits() -> AsyncIterator[Stored]:
        for stored in archive.stored:
            if stored.subject.root in roots:
                yield stored

    held = over(_Held(archive.artifacts, log.artifacts), log, next(iter(roots)))
    return await _origin(commits(), held, run, at)


class _Held:
    """The large values of an archive, and those of a log for the ones that it lacks (`FamilyArtifacts`)."""

    def __init__(self, held: Mapping[str, bytes], rest: Artifacts) -> None:
        self._held, self._rest = held, rest

    async def put(self, data: bytes, digest: str = "") -> str:
        raise NotImplementedError

    async def get(self, digest: str) -> bytes:
        if digest in self._held:
            return self._held[digest]
        try:
            return await self._rest.find(digest)
        except KeyError:
            raise ConfigError(
                f"the file refers to artifact {digest[:16]}…, which it does not contain; export it with --artifacts"
            ) from None


async def _origin(commits: AsyncIterator[Stored], artifacts: FamilyArtifacts, run: str, at: int) -> Origin:
    if type(at) is not int:
        raise ConfigError(f"a run is forked at a revision, an integer from 1 on, not {at!r}")
    ancestors, chain = Ancestors(run), Chain()
    async for stored in commits:
        if stored.subject.id in ancestors.others:
            continue
        recorded = chain.verify(stored)
        if ancestors.has(recorded):
            commit = recorded.commit
            events = await restore(commit.events, artifacts, run=commit.run, rev=commit.rev)
            ancestors.add(recorded, events)
    if run not in ancestors.family:
        raise RunNotFound(f"there is no run {run!r}")
    check(ancestors.family[run].history, at)
    return Origin(ancestors.family, at)


def submission(origin: Origin, options: ForkOptions) -> Submitted:
    """Return the event that opens the fork: the run's own, changed by the options. Raises `ConfigError`.

    A fork is not part of its run's session: the same turn would be there twice.
    """
    before = origin.submitted
    _check_options(origin, options)
    config = _config(before, options.model)
    runnable_of(before.kind, config)
    link = ForkLink(
        run=origin.run.subject.id,
        root=origin.run.subject.root,
        revision=origin.at,
        digest=origin.run.digests[origin.at - 1],
        shared=0,
        tools=options.tools,
        model=options.model or given_model(before),
    )
    text, parts = before.input, list(before.parts)
    if options.input is not None and not _begun(origin):
        text, parts = options.input, list(options.parts or with_text(before, options.input))
    what = {
        "config": config,
        "input": [text, options.input],
        "messages": before.messages,
        "metadata": before.metadata,
        "fork": [link.run, link.revision, link.tools],
    }
    if parts:
        what["parts"] = msgspec.to_builtins(parts)
    if options.parts:
        what["input_parts"] = msgspec.to_builtins(options.parts)
    return msgspec.structs.replace(
        before,
        config=config,
        config_digest=sha256_hex(canonical_json(config)),
        input=text,
        parts=parts,
        input_digest=sha256_hex(canonical_json(uncounted(what))),
        session=None,
        lane=None,
        executor=options.executor,
        idempotency_key=None,
        parent=None,
        fork=link,
        trigger=_trigger(before, options.trigger),
        start_at=None,
    )


def _config(before: Submitted, model: str | None) -> dict[str, Any]:
    return dict(before.config) if model is None else with_model(before.kind, before.config, model)


def with_content(
    options: ForkOptions, origin: Origin, registry: Registry, content: Content | None
) -> tuple[ForkOptions, GivenContent | None]:
    """Return the options with this input, and the content to store for it if it has files. Raises `ConfigError`."""
    if content is None or isinstance(content, str):
        return msgspec.structs.replace(options, input=content), None
    before = origin.submitted
    config = _config(before, options.model)
    given = (
        read_message(registry, rules_of(config), content)
        if before.kind == "agent"
        else read_content(registry, runnable_of(before.kind, config), content)
    )
    return msgspec.structs.replace(options, input=given.text, parts=given.parts), given


def _trigger(before: Submitted, given: Trigger) -> Trigger | None:
    """Return the fork's trigger; a request that is not named is the original's."""
    check_trigger(given)
    if before.trigger is not None and not given.request_id:
        given = msgspec.structs.replace(given, request_id=before.trigger.request_id)
    return None if given == PROGRAM else given


def _check_options(origin: Origin, options: ForkOptions) -> None:
    if options.tools not in POLICIES:
        raise ConfigError(f"the tool policy must be one of {', '.join(POLICIES)}, not {options.tools!r}")
    if options.input is None:
        return
    check_text("the input of a fork", options.input)
    if not (options.input or options.parts):
        raise ConfigError("the input of a fork must not be empty")
    kind = origin.submitted.kind
    if kind != "agent" and _begun(origin):
        history = origin.run.history
        last = next(n for n in range(origin.at, 0, -1) if not _BEGUN[kind](history, n))
        first, below = ("operation", "a child") if kind == "workflow" else ("node", "a node")
        raise ConfigError(
            f"a {kind} takes a new input only before its first {first}: fork it at revision {last} or before, "
            f"or fork the run of {below}"
        )


_BEGUN = {"agent": has_begun, "workflow": has_operation, "swarm": has_node, "ralph": has_node}
"""For each kind of run: may anything have read its input?"""


def _begun(origin: Origin) -> bool:
    """Return whether anything may have read the run's input."""
    return _BEGUN[origin.submitted.kind](origin.run.history, origin.at)


def replaces_input(origin: Origin, options: ForkOptions) -> bool:
    """Return whether the fork's input replaces the run's own."""
    return options.input is not None and not _begun(origin)


def opening(origin: Origin, options: ForkOptions, submitted: Submitted, run: str, now: float) -> Opening:
    """Return the runs that the fork opens with, under its id. Raises `ConfigError`."""
    message = None
    if options.input is not None and not replaces_input(origin, options):
        message = Inject(options.input, options.parts)
    return share(origin.family, origin.at, submitted, run, now, message)


def same_fork(existing: Submitted | None, given: Submitted) -> bool:
    """Return whether an existing run was forked with the same options as this one."""
    if existing is None or existing.fork is None:
        return False
    return (existing.config_digest, existing.input_digest) == (given.config_digest, given.input_digest)


__all__ = [
    "POLICIES",
    "ForkOptions",
    "Origin",
    "StoredRuns",
    "opening",
    "read_archived",
    "read_origin",
    "replaces_input",
    "same_fork",
    "submission",
    "with_content",
]
