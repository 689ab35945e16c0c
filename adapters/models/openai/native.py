"""Native tools of the Responses API: their parameters, and the calls that the server reports. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ....runtime.ports.models import NativeTool, ProviderCall
from ..endpoint import Api

_INCLUDE: Final = {
    "web_search": "web_search_call.action.sources",
    "code_execution": "code_interpreter_call.outputs",
    "file_search": "file_search_call.results",
}
"""The fields to request, by tool, so that a reply contains the tool's results."""
_NAMES: Final = {
    "web_search_call": "web_search",
    "code_interpreter_call": "code_execution",
    "file_search_call": "file_search",
}
_UNKNOWN: Final = {"web_search": frozenset({"max_uses"})}


def problem(api: Api, tool: NativeTool) -> str | None:
    """Return why the API cannot offer the tool; None if it can."""
    if api == "chat":
        return "chat completions have none; use the Responses API"
    unknown = sorted(tool.options.keys() & _UNKNOWN.get(tool.type, frozenset()))
    return f"the Responses API has no {unknown[0]} for it" if unknown else None


def parameter(tool: NativeTool) -> dict[str, Any]:
    """Return the tool in the form of the API."""
    given = tool.options
    match tool.type:
        case "web_search":
            domains = ("allowed_domains", "blocked_domains")
            filters = {name: given[name] for name in domains if name in given}
            place = {"type": "approximate", **given["user_location"]} if "user_location" in given else None
            asked = {
                "filters": filters or None,
                "search_context_size": given.get("search_context_size"),
                "user_location": place,
            }
            return {"type": "web_search", **{name: each for name, each in asked.items() if each is not None}}
        case "code_execution":
            return {"type": "code_interpreter", "container": {"type": "auto"}}
        case _:
            most = {"max_num_results": given["max_results"]} if "max_results" in given else {}
            return {"type": "file_search", "vector_store_ids": list(given["store_ids"]), **most}


def included(tools: Sequence[NativeTool]) -> list[str]:
    """Return the values for the parameter `include` that the tools need."""
    return [_INCLUDE[tool.type] for tool in tools]


def made(item: dict[str, Any]) -> ProviderCall | None:
    """Return the call that the server made, from an output item; None for any other item."""
    name = _NAMES.get(str(item.get("type")))
    if name is None:
        return None
    match name:
        case "web_search":
            action = item.get("action") if isinstance(item.get("action"), dict) else {}
            arguments = {key: each for key, each in (action or {}).items() if key != "sources"}
            result = (action or {}).get("sources")
        case "code_execution":
            arguments, result = {"code": item.get("code")}, item.get("outputs")
        case _:
            arguments, result = {"queries": item.get("queries")}, item.get("results")
    status = item.get("status", "completed")
    return ProviderCall(
        id=str(item.get("id") or ""),
        name=name,
        arguments=arguments,
        result=result,
        error=None if status == "completed" else f"the provider's tool ended {status}",
    )
