"""Native tools in an agent's configuration: their tables, and what a policy says of tools that run elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr

from ...eventlog.errors import ConfigProblem
from ..core.policy import Policy, overview_of
from ..ports.native_tools import NATIVE_TOOLS
from ..ports.suggestions import nearest

_Texts = Annotated[tuple[Annotated[StrictStr, Field(min_length=1)], ...], Field(min_length=1)]


class _Table(pydantic.BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)


class UserLocation(_Table):
    """The place for which a search is made: `country` has two letters, `timezone` is of the IANA database."""

    city: StrictStr | None = None
    country: Annotated[StrictStr, Field(pattern="^[A-Z]{2}$")] | None = None
    region: StrictStr | None = None
    timezone: StrictStr | None = None


class WebSearch(_Table):
    """Search the web. A provider that does not know an option refuses it by name."""

    type: Literal["web_search"]
    allowed_domains: _Texts | None = None
    blocked_domains: _Texts | None = None
    max_uses: Annotated[StrictInt, Field(ge=1)] | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: UserLocation | None = None


class CodeExecution(_Table):
    """Run code that the model writes, in a sandbox of the provider."""

    type: Literal["code_execution"]


class FileSearch(_Table):
    """Search files that were put into stores of the provider before."""

    type: Literal["file_search"]
    store_ids: _Texts
    max_results: Annotated[StrictInt, Field(ge=1)] | None = None


_TABLES: dict[str, type[_Table]] = {
    "web_search": WebSearch,
    "code_execution": CodeExecution,
    "file_search": FileSearch,
}


def _table(given: Any) -> Any:
    """Return the table of a native tool, which may be given by its name alone."""
    table = {"type": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping):  # pydantic reports a ValueError
        raise ValueError(  # noqa: TRY004
            f"must be the name of a native tool or a table with its type, not {given!r:.60}"
        )
    name = table.get("type")
    if name not in NATIVE_TOOLS:
        if name is None:
            raise ValueError(f"a table needs the key type: one of {', '.join(NATIVE_TOOLS)}")
        raise ValueError(f"{name!r:.60} is not a native tool{nearest(str(name), NATIVE_TOOLS)}")
    if unknown := next((key for key in table if key not in _TABLES[name].model_fields), None):
        raise ValueError(
            f"{name} has no option {unknown!r}{nearest(str(unknown), _TABLES[name].model_fields)}"
        )
    return dict(table)


def _once(tools: tuple[Any, ...]) -> tuple[Any, ...]:
    names = [tool.type for tool in tools]
    if twice := next((name for index, name in enumerate(names) if name in names[:index]), None):
        raise ValueError(f"{twice!r} occurs twice")
    return tools


_Entry = Annotated[
    Annotated[WebSearch | CodeExecution | FileSearch, Field(discriminator="type")], BeforeValidator(_table)
]


def _not_empty(given: Any) -> Any:
    """Return null for an empty list: an agent without native tools stores nothing of them."""
    return None if isinstance(given, list | tuple) and not given else given


NativeTools = Annotated[
    Annotated[tuple[_Entry, ...], AfterValidator(_once)] | None, BeforeValidator(_not_empty)
]


def denied(policy: Policy, names: Iterable[str]) -> Iterator[str]:
    """Yield why native tools of these names may not be offered under a policy.

    They run at the provider, within its reply, so that a call cannot be checked before it is made: the policy has to
    allow them whatever they are called with.
    """
    for name in names:
        ruling = overview_of(policy, name)
        if ruling.action != "allow":
            told = (
                "denies it"
                if ruling.action == "deny"
                else "requires an approval, which cannot be requested for it"
            )
            yield f"native_tools: {name!r} runs at the provider, and the policy {told}: {ruling.why}"


def native_tool_problems(
    names: Sequence[str], policy: Policy, approved: Iterable[str], others: Iterable[str]
) -> Iterator[ConfigProblem]:
    """Yield what is wrong with native tools of these names.

    `policy` is the agent's own, `approved` are its `hitl_tools`, `others` the names of its own tools.
    """
    key = "native_tools"
    yield from (ConfigProblem(key, message) for message in denied(policy, names))
    for name in names:
        if name in approved:
            message = f"hitl_tools: {name!r} runs at the provider, without approvals: leave it out of one of the two"
            yield ConfigProblem("hitl_tools", message)
        if name in others:
            yield ConfigProblem(key, f"{key}: {name!r} is the name of one of the agent's tools, too")
