"""The content given to a run: all of it is checked first, then its files are stored, then the run is submitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.parts import Part, files_of
from ...eventlog.ports import Log
from ...projections.messages import parse_messages
from ..core.content import CountTokens, Held, check_total, held, no_count
from ..core.rules import FileRules, Rules, rules_of
from ..ports.files import Content
from ..ports.runnable import Runnable
from . import capabilities
from .registry import Registry


class GivenContent(msgspec.Struct, frozen=True):
    """The content given to a run: its input as text and parts, the messages before it, and the bytes of its files."""

    text: str
    parts: tuple[Part, ...]
    messages: Sequence[Mapping[str, Any]] = ()
    data: Mapping[str, bytes] = {}
    known: tuple[str, ...] = ()

    async def store(self, log: Log, root: str) -> None:
        """Store the files below the root run; a named artifact may be of any family.

        Raises `ConfigError` for a named artifact that the log does not have.
        """
        artifacts = log.artifacts.of(root)
        for artifact in self.known:
            try:
                await artifacts.put(await log.artifacts.find(artifact))
            except KeyError:
                raise ConfigError(
                    f"a message names the artifact {artifact}, which the log does not have"
                ) from None
        for data in self.data.values():
            await artifacts.put(data)


def read_content(
    registry: Registry, runnable: Runnable[Any], content: Content, messages: Sequence[Mapping[str, Any]] = ()
) -> GivenContent:
    """Return the content for a run, checked. Raises `ConfigError`."""
    if isinstance(content, str) and not any(map(_has_parts, messages)):
        return GivenContent(content, (), messages)
    readers = [rules_of(agent.to_config()) for agent in readers_of(runnable)]
    limits = _least([rules.files for rules in readers])
    count = capabilities.tokens_by(registry.provider, readers[0].model) if readers else no_count
    own = held(content, limits, count)
    before = [(each, _held_message(each, limits, count)) for each in messages]
    every = [*(found for _, found in before if found is not None), own]
    by_message = [files_of(each.parts) for each in every]
    files = [file for each in by_message for file in each]
    if files and not readers:
        raise ConfigError(f"a {runnable.kind} takes text only: give files to one of its agents, by a tool")
    check_total({file.artifact: file.bytes for file in files if file.artifact}, limits)
    data = {artifact: data for each in every for artifact, data in each.data.items()}
    for rules in readers:
        capabilities.check_files(registry.provider, rules.models, by_message, data)
    return GivenContent(
        text=own.text,
        parts=own.parts,
        messages=[_message(given, found) for given, found in before],
        data=data,
        known=_to_check(registry, every),
    )


def readers_of(runnable: Runnable[Any]) -> Iterator[Runnable[Any]]:
    """Yield the agents that read the input of a run: the agent itself, or those that a swarm or a loop hands it to."""
    if runnable.kind == "agent":
        yield runnable
        return
    heads: Iterable[str] = getattr(runnable, "heads", runnable.members)
    for name in heads:
        yield from readers_of(runnable.members[name])


def _least(limits: Sequence[FileRules]) -> FileRules:
    """Return the lowest of the limits; the defaults for none."""
    if not limits:
        return FileRules()
    return FileRules(
        file_bytes_max=min(each.file_bytes_max for each in limits),
        request_bytes_max=min(each.request_bytes_max for each in limits),
    )


def read_message(registry: Registry, rules: Rules, content: Content) -> GivenContent:
    """Return the content of a further message to a run of these rules, checked. Raises `ConfigError`.

    The sender's process may lack the run's provider: then the process that drives the run finds out what it takes.
    """
    known = capabilities.known_models(registry.provider, rules.models)
    count = capabilities.tokens_by(registry.provider, rules.model) if rules.model in known else no_count
    found = held(content, rules.files, count)
    if not (found.text or found.parts):
        raise ConfigError("a message needs a text that is not empty, or a file")
    files = files_of(found.parts)
    check_total({file.artifact: file.bytes for file in files if file.artifact}, rules.files)
    capabilities.check_files(registry.provider, known, [files], found.data)
    return GivenContent(found.text, found.parts, data=found.data, known=_to_check(registry, [found]))


def _to_check(registry: Registry, every: Iterable[Held]) -> tuple[str, ...]:
    """Return the named artifacts that the log has to have, each once."""
    named = dict.fromkeys(artifact for each in every for artifact in each.known)
    return tuple(artifact for artifact in named if artifact not in registry.files_elsewhere)


def _has_parts(message: object) -> bool:
    if not isinstance(message, Mapping):  # reported later, with all other problems of messages
        return False
    return bool(message.get("parts")) or not isinstance(message.get("content", ""), str)


def _held_message(message: Mapping[str, Any], rules: FileRules, count: CountTokens) -> Held | None:
    """Return the content of a message that is more than one text; null for any other message."""
    if not _has_parts(message):
        return None
    if not isinstance(message.get("content", ""), str):
        return held(message["content"], rules, count)
    (parsed,) = parse_messages([{"role": "user", "parts": message["parts"]}])
    return held(parsed.parts, rules, count)


def _message(given: Mapping[str, Any], found: Held | None) -> Mapping[str, Any]:
    if found is None:
        return given
    parts = [msgspec.to_builtins(part) for part in found.parts]
    return {**given, "content": found.text, "parts": parts}
