"""The settings that OpenAI's models support, by their names; other servers report it themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ....runtime.ports.settings import ModelSettings
from ..endpoint import Api, Endpoint

_REASONS = re.compile(r"(o\d|gpt-[5-9]|codex)(?!.*-chat)")
_ALWAYS_REASONS = re.compile(r"(o\d|gpt-5)(?![.\d])(?!.*-chat)")
"""The older reasoning models, which always reason, and refuse settings that only apply without reasoning."""
_VERBOSE = re.compile(r"gpt-[5-9]")
_SAMPLING = ("temperature", "top_p")
_NOT_IN_RESPONSES = ("stop", "seed")


def reasons(model: str) -> bool:
    """Return whether a model of this name thinks before it answers, or can."""
    return _REASONS.match(model) is not None


def unknown_settings(api: Api, endpoint: Endpoint, model: str, settings: ModelSettings) -> dict[str, str]:
    """Return the given settings that this API, or OpenAI's model of this name, does not know, each with the reason."""
    found = dict(_unknown_to_api(api, settings))
    return found | dict(_unknown_to_model(model, settings)) if endpoint.is_openai else found


def _unknown_to_api(api: Api, settings: ModelSettings) -> Iterator[tuple[str, str]]:
    given = settings.given()
    if isinstance(settings.reasoning, int):
        yield "reasoning", "this API takes a word (off, minimal, low, medium, high), and no number of tokens"
    if settings.cache not in {None, "auto"}:
        yield "cache", "the server caches by itself, and takes no marks"
    if api == "responses":
        yield from ((name, "the Responses API has none") for name in _NOT_IN_RESPONSES if name in given)


def _unknown_to_model(model: str, settings: ModelSettings) -> Iterator[tuple[str, str]]:
    given, effort = settings.given(), settings.reasoning
    if effort is not None and not reasons(model):
        yield "reasoning", "the model does not reason"
    if settings.verbosity is not None and not _VERBOSE.match(model):
        yield "verbosity", ""
    if _ALWAYS_REASONS.match(model):
        if effort == "off":
            yield "reasoning", "the model always reasons"
        yield from ((name, "the model reasons") for name in (*_SAMPLING, "stop") if name in given)
    elif reasons(model) and effort not in {None, "off"}:
        yield from ((name, "the model reasons") for name in _SAMPLING if name in given)
