"""Convert what an agent of the OpenAI Agents SDK sends to the model: model name, settings, and native tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .foreign_tool import Reading, is_elsewhere, openai_servers

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "verbosity": "verbosity",
    "tool_choice": "tool_choice",
    "extra_headers": "headers",
    "timeout": "timeout_s",
}
_IN_BODY = {
    "openai": ("frequency_penalty", "presence_penalty", "metadata", "prompt_cache_retention"),
    "openai-responses": ("truncation", "metadata", "prompt_cache_retention"),
}
"""Settings that each API takes in its request under their own names."""
_NOT_SENT = {"retry", "include_usage", "preserve_raw_usage", "store"}
"""Settings of the SDK's runner, not of the model: foldlog has its own retries, usage and storage."""
_NATIVE = {
    "CodeInterpreterTool": "code_execution",
    "FileSearchTool": "file_search",
    "WebSearchTool": "web_search",
}
"""foldlog's native tools, by the SDK's classes of tools that run at OpenAI."""
_NATIVE_OPTIONS = {
    "max_num_results": "max_results",
    "search_context_size": "search_context_size",
    "vector_store_ids": "store_ids",
}
_USUAL: dict[str, tuple[Any, ...]] = {
    "include_search_results": (True, False),  # they always are
    "search_context_size": ("medium",),
    "tool_config": ({"type": "code_interpreter", "container": {"type": "auto"}},),
}
"""Values of options of these tools that need no equivalent here."""


def model_of(reading: Reading, model: Any) -> str:
    """Return the model as `provider:name`. Raises `ConfigError` if no provider of foldlog serves it."""
    from agents.models import _openai_shared as shared
    from agents.models.default_models import get_default_model

    api = "openai-responses" if shared.get_use_responses_by_default() else "openai"
    client = shared.get_default_openai_client()
    name = get_default_model() if model is None else model
    if not isinstance(name, str):
        apis = {"OpenAIResponsesModel": "openai-responses", "OpenAIChatCompletionsModel": "openai"}
        if type(model).__name__ not in apis:
            reading.refuse(f"the model {model!r} has no provider here; say from_openai_agents(model=...)")
        api, name, client = apis[type(model).__name__], model.model, model._client  # noqa: SLF001
    elif "/" in name and not name.startswith("openai/"):
        reading.refuse(f"the model {name!r} has no provider here; say from_openai_agents(model=...)")
    if client is not None and is_elsewhere(str(client.base_url), *openai_servers()):
        reading.refuse(
            f"the model {name!r} is called at {client.base_url}: name that server in foldlog.toml, and say "
            "from_openai_agents(model=...)"
        )
    return f"{api}:{name.removeprefix('openai/')}"


def settings_of(reading: Reading, agent: Any, model: str) -> dict[str, Any]:
    """Return the agent's settings for a model (`provider:name`). Raises `ConfigError` for one without an equivalent."""
    settings, api = agent.model_settings, model.partition(":")[0]
    body: dict[str, Any] = dict(settings.extra_body or {})
    found: dict[str, Any] = {}
    for name, value in vars(settings).items():
        if value is None or name in {*_NOT_SENT, "extra_body"}:
            continue
        if name in _SETTINGS:
            found[_SETTINGS[name]] = value
        elif name in _IN_BODY.get(api, ()):
            body[name] = value
        elif name == "reasoning":
            found |= _reasoning(reading, value, api, body)
        else:
            reading.refuse(f"the model setting {name!r} has no equivalent; extra_body may carry it")
    _check_choice(reading, agent, found.get("tool_choice"))
    return reading.settings(found | ({"extra_body": body} if body else {}))


def _reasoning(reading: Reading, reasoning: Any, api: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the reasoning effort as a setting, and add the other reasoning options to the request body."""
    given = {name: value for name, value in dict(reasoning).items() if value is not None}
    effort = given.pop("effort", None)
    if given and api != "openai-responses":
        reading.refuse(f"{min(given)} of the model setting 'reasoning' has no equivalent")
    if given:
        body["reasoning"] = {**body.get("reasoning", {}), **given}
    return {} if effort is None else {"reasoning": "off" if effort == "none" else effort}


def _check_choice(reading: Reading, agent: Any, choice: Any) -> None:
    if choice is not None and not isinstance(choice, str):
        reading.refuse("the model setting 'tool_choice' does not name a tool")
    if choice not in {None, "auto", "none"} and not agent.reset_tool_choice:
        reading.refuse("reset_tool_choice: a choice that forces a call is for the first step only")


def native_tool(reading: Reading, tool: Any) -> dict[str, Any]:
    """Convert a tool that the provider runs into the table of a native tool. Raises `ConfigError`."""
    kind = _NATIVE.get(type(tool).__name__)
    if kind is None:
        reading.refuse(f"the tool {tool.name!r} is run by the provider, and is not a native tool here")
    options: dict[str, Any] = {}
    for name, value in vars(tool).items():
        if value is None or value in _USUAL.get(name, ()):
            continue
        if name == "filters" and kind == "web_search":
            options |= _domains(reading, tool, value)
        elif name == "user_location":
            options[name] = {key: each for key, each in dict(value).items() if key != "type" and each}
        elif name in _NATIVE_OPTIONS:
            options[_NATIVE_OPTIONS[name]] = value
        else:
            reading.refuse(f"{name} of the tool {tool.name!r} has no equivalent")
    return {"type": kind, **options}


def _domains(reading: Reading, tool: Any, filters: Any) -> dict[str, Any]:
    given = filters if isinstance(filters, Mapping) else filters.model_dump(exclude_none=True)
    if unknown := given.keys() - {"allowed_domains", "blocked_domains"}:
        reading.refuse(f"{min(unknown)} of the tool {tool.name!r} has no equivalent")
    return dict(given)
