"""The configuration of an agent, in the one form shared by TOML, JSON, the log, workers and the console.

`to_config()` is complete (defaults are included, so that a later release cannot change the meaning of a stored run) and
has no null in our own fields (null is always the default, and TOML has none). Fields of a disabled feature are
validated, kept and ignored.
"""

from __future__ import annotations

import re
import reprlib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

import msgspec
import pydantic
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
)

from ...eventlog.errors import AgentConfigError, ConfigError, ConfigProblem
from ...eventlog.events import PolicyAction
from ...projections.messages import canonical_json, sha256_hex
from ...projections.retrieval import RETRIEVE
from ..core.policy import Policy, condition
from ..core.rules import BreakerRules, ContextRules, FileRules, RetryRules, Rules
from ..ports.json_schema import DRAFT, check_output_schema
from ..ports.json_values import NotJson, as_json
from ..ports.settings import EFFORTS, TOOL_CHOICES, Cache, Effort, ModelSettings, as_table
from ..ports.suggestions import near, nearest
from .mcp_servers import server_problems, servers_schema
from .native_tools import NativeTools, native_tool_problems
from .standing_plan import PLAN_TOOLS

OUTPUT_RETRIES = 2
"""The default number of further answers that a model may give if its output does not fit."""
APPROVAL_TIMEOUT_S_MAX = 1e9
INTEGER_MAX = 2**53 - 1
"""The largest integer that every JSON reader represents exactly."""
AGENT = "agent"
"""The kind of a run of an agent, and of its configuration."""
MODEL = "openai:gpt-4o"
"""The model of an agent that names none."""
# What the core decides by has its defaults there; a configuration has the same.
_RULES, _CONTEXT, _RETRY, _BREAKER, _FILES = (
    Rules(),
    ContextRules(),
    RetryRules(),
    BreakerRules(),
    FileRules(),
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MODEL = re.compile(r"[A-Za-z0-9_-]{1,64}:\S.*")
_BUDGET_AWARENESS = re.compile(r"per-message|limit:(100|[0-9]{1,2})")
_INJECTED_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_NO_JSON = "invalid-json-value"
_MESSAGES = {
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    _NO_JSON: "must be a value of JSON",
}


# --- fields -----------------------------------------------------------------------------------------------------------


def _pattern(pattern: re.Pattern[str]) -> Any:
    """Add the validator's pattern to the JSON Schema; the validator has the better message."""
    return Field(json_schema_extra={"pattern": f"^({pattern.pattern})$"})


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"{value!r} must be 1 to 64 letters, digits, '_' or '-'")
    return value


def _model(value: str) -> str:
    if not _MODEL.fullmatch(value):
        raise ValueError(f"{value!r} must be written provider:model, as in 'openai:gpt-4o'")
    return value


def _budget_awareness(value: str) -> str:
    if not _BUDGET_AWARENESS.fullmatch(value):
        raise ValueError(f"{value!r} must be 'per-message' or 'limit:<0-100>', as in 'limit:70'")
    return value


def _injected_name(value: str) -> str:
    if not _INJECTED_NAME.fullmatch(value):
        raise ValueError(f"{value!r} must be a letter or '_', then at most 63 letters, digits, '_' or '-'")
    return value


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{value!r} occurs twice")
    return values


def _in_order(value: Any) -> Any:
    """Sort a set, whose order differs between processes, because the order is part of the digest."""
    return sorted(value) if isinstance(value, AbstractSet) else value


def _rounds(value: int) -> int:
    if value == 1:
        raise ValueError("must be 0 (off) or at least 2: one round repeats nothing")
    return value


def _plain(value: Any) -> Any:
    try:
        return as_json(value)
    except NotJson as error:
        raise ValueError(f"it cannot be stored as JSON: {error}") from None


Name = Annotated[StrictStr, AfterValidator(_name), _pattern(_NAME)]
Text = Annotated[StrictStr, AfterValidator(_plain)]
ModelName = Annotated[Text, AfterValidator(_model), _pattern(_MODEL)]
BudgetAwareness = Annotated[StrictStr, AfterValidator(_budget_awareness), _pattern(_BUDGET_AWARENESS)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_in_order), AfterValidator(_distinct)]
JsonObject = Annotated[dict[StrictStr, JsonValue], AfterValidator(_plain)]
Positive = Annotated[StrictInt, Field(ge=1, le=INTEGER_MAX)]
NotNegative = Annotated[StrictInt, Field(ge=0, le=INTEGER_MAX)]
Seconds = Annotated[StrictFloat, Field(ge=0)]
Percent = Annotated[StrictInt, Field(ge=0, le=100)]


class _Table(pydantic.BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True, allow_inf_nan=False)


class ContextConfig(_Table):
    """The rules that keep the history within the context window. Explicit numbers override those of the mode."""

    mode: Literal["pilot", "copilot", "navigator"] | None = None
    history_messages_max: Positive | None = None
    summary_at_messages: Positive | None = None
    offload_at_messages: Positive | None = None
    overflow: Literal["summarize", "truncate", "none"] = _CONTEXT.overflow
    window_tokens: Positive | None = None
    """The model's context window, if foldlog does not know it."""
    trigger_pct: Percent = _CONTEXT.trigger_pct
    compact_pct: Percent = _CONTEXT.compact_pct
    keep_user_tokens: NotNegative = _CONTEXT.keep_user_tokens
    artifact_bytes_min: Positive = _CONTEXT.artifact_bytes_min
    """A tool result of more bytes is stored as an artifact."""


class MemoryConfig(_Table):
    """The earlier runs that a run remembers: those of its user, its session or its task, or none."""

    scope: Literal["user", "session", "task", "none"]
    backend: Name = "log"


class Ceilings(_Table):
    """The amounts that may be used in all; null for no ceiling."""

    max_tokens: NotNegative | None = None
    max_cost_usd: Annotated[Decimal, Field(ge=0)] | None = None
    max_seconds: Seconds | None = None


class BudgetsConfig(Ceilings):
    """Ceilings of the run, and of each of its steps."""

    step: Ceilings | None = None


class RetryConfig(_Table):
    """The retries of failed model calls: backoff of `base_s` x 2^n, at most `max_s`, with jitter."""

    attempts: Positive = _RETRY.attempts
    """Attempts with each model; 1 for no retry."""
    base_s: Seconds = _RETRY.base_s
    max_s: Seconds = _RETRY.max_s
    jitter: StrictBool = _RETRY.jitter
    exhausted: Literal["error", "pause"] = _RETRY.exhausted
    """The reaction of a run when its model, and every fallback, has failed."""
    quota: dict[Literal["transient", "rate_limit", "tool_failure"], NotNegative] = {}
    """The most retries of a run in all, by error type; types that are missing are not limited."""


class BreakerConfig(_Table):
    """The circuit breakers of model providers and tools, whose state is shared by all workers."""

    failures: Positive = _BREAKER.failures
    """The consecutive failures that open it."""
    open_s: Annotated[StrictFloat, Field(gt=0)] = _BREAKER.open_s
    """The time it stays open; then it admits one call."""


def _condition(text: str) -> str:
    """Check the condition of a rule. Raises `ValueError`."""
    try:
        condition(text, "")
    except ConfigError as error:
        raise ValueError(str(error).removeprefix(": ")) from None
    return text


class PolicyRuleConfig(_Table):
    """A rule: the action for calls whose tool name and arguments all match these patterns."""

    tool: Annotated[Text, Field(min_length=1)] = "*"
    arguments: dict[Text, Text] = {}
    """A pattern for each argument that has to match."""
    unless: dict[Text, Text] = {}
    """The rule does not apply to calls whose arguments match all of these patterns."""
    when: Annotated[Text, AfterValidator(_condition)] | None = None
    """The rule applies only to calls that meet this condition."""
    action: PolicyAction
    reason: Text = ""
    """Shown to the model, or to the person who decides."""


class PolicyConfig(_Table):
    """The rules for calls of the agent's tools: deny > require_approval > allow > default."""

    rules: tuple[PolicyRuleConfig, ...] = ()
    default: PolicyAction = "allow"


class ConcurrencyConfig(_Table):
    """The limit on runs of this agent that are driven at once, over all workers; null for none."""

    runs_max: Positive | None = None


class FilesConfig(_Table):
    """The size limits for files in messages and tool results."""

    file_bytes_max: Positive = _FILES.file_bytes_max
    request_bytes_max: Positive = _FILES.request_bytes_max


def _settings_table(value: Any) -> Any:
    """Return `ModelSettings` as a table; null for an empty one."""
    return (as_table(value) if isinstance(value, ModelSettings) else value) or None


def _amount_of_reasoning(value: Any) -> Any:
    """Check an amount of reasoning at once: pydantic would say of each of both forms that it is another."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= INTEGER_MAX
    if value is None or is_number or value in EFFORTS:
        return value
    raise ValueError(f"must be one of {', '.join(EFFORTS)}, or a number of tokens, not {value!r:.60}")


HeaderName = Annotated[Text, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderText = Annotated[Text, Field(pattern=r"^[\t -~]*$")]
"""Text that a header can carry: one line of ASCII."""


class SettingsConfig(_Table):
    """`ModelSettings` as a table; null leaves a setting to the provider."""

    temperature: Annotated[StrictFloat, Field(ge=0, le=2)] | None = None
    top_p: Annotated[StrictFloat, Field(gt=0, le=1)] | None = None
    max_tokens: Positive | None = None
    stop: tuple[Annotated[Text, Field(min_length=1)], ...] | None = None
    seed: StrictInt | None = None
    parallel_tool_calls: StrictBool | None = None
    tool_choice: Annotated[Text, Field(min_length=1)] | None = None
    reasoning: Annotated[Effort | Positive | None, BeforeValidator(_amount_of_reasoning)] = None
    verbosity: Literal["low", "medium", "high"] | None = None
    service_tier: Annotated[Text, Field(min_length=1)] | None = None
    cache: Cache | None = None
    timeout_s: Annotated[StrictFloat, Field(gt=0)] | None = None
    headers: dict[HeaderName, HeaderText] | None = None
    extra_body: JsonObject | None = None
    strict: StrictBool | None = None
    """If false, a setting that the provider or model does not support is left out; otherwise it is rejected."""


class AgentConfig(_Table):
    """An agent's configuration. Frozen; every wrong key or value is an `AgentConfigError`."""

    name: Name
    model: ModelName = MODEL
    instructions: Text = ""
    instructions_function: Text | None = None
    """The name of the function that returns the instructions of each run; `instructions` are added to them."""
    max_steps: Positive = _RULES.max_steps
    settings: Annotated[SettingsConfig | None, BeforeValidator(_settings_table)] = None
    """The settings of the model's replies; null leaves all to the provider."""
    on_length: Literal["error", "continue", "accept"] = _RULES.on_length
    """The handling of a final answer that was cut off at its length limit."""
    tools: Names = ()
    native_tools: NativeTools = None
    """The tools that the model's provider runs itself, by name or as tables with options."""
    mcp_servers: dict[Name, JsonObject] = {}
    output_schema: JsonObject | None = None
    output_retries: NotNegative | None = None
    """The number of further answers that the model may give if its output does not fit or is refused; null means 2."""
    output_validators: Names | None = None
    """The functions that may refuse an output, by name."""
    planning_enabled: StrictBool = False
    planning_model: ModelName | None = None
    planning_instructions: Text = _RULES.planning_instructions
    budget_awareness: BudgetAwareness | None = None
    hitl_tools: Names = ()
    policy: PolicyConfig | None = None
    emit_mcp_progress: StrictBool = _RULES.emit_mcp_progress
    injected_tool_args: dict[Annotated[StrictStr, AfterValidator(_injected_name)], Text] = {}
    allow_parallel_subagents: StrictBool = False
    max_parallel_subagents: Annotated[StrictInt, Field(ge=1, le=7)] = 3
    allow_self_spawn: StrictBool = False
    max_spawn_depth: Positive = 3
    max_spawn_children: Positive = 4
    max_spawn_total: Positive = 16
    context: ContextConfig | None = None
    memory: MemoryConfig | None = None
    """Null: a run of a session remembers the session."""
    standing_plan: Name | None = None
    """The name of the standing plan that the agent follows and updates."""
    knowledge: StrictBool | None = None
    """If true, the prompt includes stored knowledge that matches the input; null: only if the agent has a memory."""
    budgets: BudgetsConfig | None = None
    retry: RetryConfig = RetryConfig()
    fallback_models: Annotated[tuple[ModelName, ...], AfterValidator(_distinct)] = ()
    breaker: BreakerConfig | None = None
    concurrency: ConcurrencyConfig | None = None
    files: FilesConfig | None = None
    loop_threshold: Annotated[NotNegative, AfterValidator(_rounds)] = _RULES.loop_threshold
    """This many identical rounds in a row end the run; 0 is off."""
    model_idle_timeout_s: Annotated[StrictFloat, Field(gt=0)] = _RULES.model_idle_timeout_s
    model_first_token_timeout_s: Annotated[StrictFloat, Field(gt=0)] | None = None
    """The time to the first token; null: by the length of the prompt."""
    model_timeout_s: Annotated[StrictFloat, Field(gt=0)] = _RULES.model_timeout_s
    step_timeout_s: Annotated[StrictFloat, Field(gt=0)] | None = None
    """The timeout of a step, not counting pauses; null for none, as for the run."""
    run_timeout_s: Annotated[StrictFloat, Field(gt=0)] | None = None
    approval_timeout_s: Annotated[StrictFloat, Field(gt=0, le=APPROVAL_TIMEOUT_S_MAX)] | None = None
    """The time that an approval waits for an answer; null is seven days."""

    @pydantic.field_validator("output_schema")
    @classmethod
    def _schema_is_ours(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            check_output_schema(value)
        return value

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _errors_are_ours(cls, data: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        try:
            config = handler(data)
        except pydantic.ValidationError as error:
            raise AgentConfigError(
                explain(error, data, AgentConfig), problems_of(error, AgentConfig)
            ) from None
        if config.output_retries is None and (config.output_schema is not None or config.output_validators):
            vars(config)["output_retries"] = (
                OUTPUT_RETRIES  # what is stored says it, for agents that it is about
            )
        if problems := [
            *server_problems(config.mcp_servers),
            *_native_tool_problems(config),
            *_unknown_approvals(config),
            *_unknown_choice(config),
        ]:
            raise AgentConfigError(f"agent {config.name!r}: {_joined(problems)}", problems)
        return config

    @classmethod
    def from_config(cls, data: Mapping[str, Any]) -> AgentConfig:
        """Return the configuration in `data`. Raises `AgentConfigError`, which names each wrong key by its path.

        A table among others has a `kind`; that of an agent may have it anywhere.
        """
        if not isinstance(data, Mapping):
            raise AgentConfigError(f"an agent's configuration must be a table, not {data!r:.60}")
        table = dict(data)
        kind = table.pop("kind", AGENT)
        if kind != AGENT:
            message = f"kind is {kind!r:.60}, but this is read as an agent"
            raise AgentConfigError(message, [ConfigProblem("kind", message)])
        return cls.model_validate(table)

    def to_config(self) -> dict[str, Any]:
        """Return the configuration as JSON builtins; `from_config` of it is equal. Each call returns a new copy."""
        config = self.model_dump(mode="json", exclude_none=True)
        # The content of these is the user's, including nulls.
        if self.output_schema is not None:
            config["output_schema"] = as_json(self.output_schema)
        config["mcp_servers"] = as_json(self.mcp_servers)
        if self.settings is not None and self.settings.extra_body is not None:
            config["settings"]["extra_body"] = as_json(self.settings.extra_body)
        return config


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) over the canonical JSON of a configuration from `to_config`."""
    return sha256_hex(canonical_json(config))


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an agent's configuration."""
    schema = AgentConfig.model_json_schema()
    entry, tables = servers_schema("#/$defs/{name}")
    schema["$defs"] |= tables
    schema["properties"]["mcp_servers"]["additionalProperties"] = entry
    schema["properties"]["kind"] = {"const": AGENT, "description": "The kind of the table; optional."}
    return {"$schema": DRAFT, **schema}


def capabilities_needed(config: AgentConfig) -> frozenset[str]:
    """Return the capabilities that an executor needs for this agent, by their names in R20.

    In addition: `concurrency`, so that no executor ignores that setting silently.
    """
    needs = {
        "approvals": config.hitl_tools
        or config.budgets
        or (config.policy is not None and asks_for_approvals(config.policy.model_dump())),
        "children": config.allow_self_spawn or config.allow_parallel_subagents,
        "concurrency": config.concurrency,
        "context": config.context or config.budget_awareness,
        "fallback": config.fallback_models,
        "memory": config.knowledge or (config.memory and config.memory.scope != "none"),
        "planning": config.planning_enabled,
        "progress": config.mcp_servers and config.emit_mcp_progress,
    }
    return frozenset(name for name, needed in needs.items() if needed)


def asks_for_approvals(policy: Mapping[str, Any]) -> bool:
    """Return whether a call may need an approval by this policy, as a table."""
    return "require_approval" in {policy["default"], *(rule["action"] for rule in policy["rules"])}


def shared_policy(table: object, where: str) -> dict[str, Any]:
    """Return the policy of a namespace as it is stored. Raises `ConfigError`, which begins with `where`."""
    try:
        policy = PolicyConfig.model_validate(table)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{where}: {_joined(problems_of(error, PolicyConfig))}") from None
    return policy.model_dump(mode="json", exclude_none=True)


# --- checks and errors ------------------------------------------------------------------------------------------------


def _unknown_approvals(config: AgentConfig) -> list[ConfigProblem]:
    """Return `hitl_tools` that are unknown. Tools of MCP servers are only checked at preparation, once connected."""
    known, servers = _callable(config)
    native = [tool.type for tool in config.native_tools or ()]
    return [
        ConfigProblem(
            "hitl_tools",
            f"hitl_tools: {name!r} is not a tool of the agent"
            + (nearest(name, known) if near(name, known) else "; list it in tools, too"),
            near(name, known),
        )
        for name in config.hitl_tools
        if name not in known and not name.startswith(servers) and name not in native
    ]


def _unknown_choice(config: AgentConfig) -> list[ConfigProblem]:
    """Return a `tool_choice` that is not a tool which the model may call, as of `hitl_tools`."""
    choice = config.settings.tool_choice if config.settings is not None else None
    known, servers = _callable(config)
    if choice is None or choice in TOOL_CHOICES or choice in known or choice.startswith(servers):
        return []
    key, possible = "settings.tool_choice", [*known, *TOOL_CHOICES]
    message = f"{key}: {choice!r} is not a tool of the agent{nearest(choice, possible)}"
    return [ConfigProblem(key, message, near(choice, possible))]


def _callable(config: AgentConfig) -> tuple[list[str], tuple[str, ...]]:
    """Return the tools that are known, and how the names of those of MCP servers begin."""
    known = [*python_tool_names(config), *([RETRIEVE] if config.context is not None else [])]
    return known, tuple(f"mcp__{server}__" for server in config.mcp_servers)


def _native_tool_problems(config: AgentConfig) -> Iterable[ConfigProblem]:
    if config.native_tools is None:
        return ()
    names = [tool.type for tool in config.native_tools]
    policy = config.policy.model_dump(mode="json", exclude_none=True) if config.policy is not None else {}
    return native_tool_problems(
        names, msgspec.convert(policy, Policy), config.hitl_tools, python_tool_names(config)
    )


def tools_by_setting(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tools that a configuration has by other settings than `tools`: no selection of tools removes them."""
    plan = () if config.get("standing_plan") is None else tuple(PLAN_TOOLS)
    return plan if config.get("context") is None else (*plan, RETRIEVE)


def python_tool_names(config: AgentConfig) -> list[str]:
    """Return all tools of the agent except those of MCP servers: the named ones, then those for sub-agents."""
    spawns = {"spawn_self": config.allow_self_spawn, "parallel_subagents": config.allow_parallel_subagents}
    plan = () if config.standing_plan is None else PLAN_TOOLS
    return [*config.tools, *plan, *(name for name, allowed in spawns.items() if allowed)]


def explain(
    error: pydantic.ValidationError, data: Any, model: type[pydantic.BaseModel], what: str = "agent"
) -> str:
    """Return each problem by its path, with the nearest known key; `what` is named if `data` has a name."""
    message = _joined(problems_of(error, model))
    name = data.get("name") if isinstance(data, Mapping) else None
    return f"{what} {name!r}: {message}" if isinstance(name, str) else message


def problems_of(error: pydantic.ValidationError, model: type[pydantic.BaseModel]) -> list[ConfigProblem]:
    """Return the problems one by one."""
    return [_problem(problem, model) for problem in error.errors(include_url=False)]


def within(key: str, error: AgentConfigError) -> AgentConfigError:
    """Return the error of the table at `key` of another table, with its place there."""
    problems = [
        problem._replace(key=f"{key}.{problem.key}".removesuffix("."), message=f"{key}: {problem.message}")
        for problem in error.problems
    ]
    return AgentConfigError(f"{key}: {error}", problems)


def _joined(problems: list[ConfigProblem]) -> str:
    return "; ".join(problem.message for problem in problems)


def _problem(problem: Any, model: type[pydantic.BaseModel]) -> ConfigProblem:
    kind = problem["type"]
    # `[key]` is pydantic's mark of a key; of an unknown key it is part of the user's own name.
    marks = set[str]() if kind == "extra_forbidden" else {"[key]"}
    marked = _unmarked(problem["loc"]) if kind == _NO_JSON else problem["loc"]
    location = [str(part) for part in marked if part not in marks]
    path = ".".join(location)
    match kind:
        case "extra_forbidden":
            known = _keys(model, location[:-1])
            if model is AgentConfig and path in SettingsConfig.model_fields:
                known = [f"settings.{path}"]
            message = f"unknown key {path!r}{nearest(location[-1], known)}"
            return ConfigProblem(path, message, near(location[-1], known))
        case "missing":
            message = f"the key {path!r} is required"
        case "value_error":
            message = f"{path}: {problem['ctx']['error']}".removeprefix(": ")
        case _:
            # The entry of a server may hold a secret.
            shown = "" if location[:1] == ["mcp_servers"] else f", not {reprlib.repr(problem['input'])}"
            message = f"{path}: {_MESSAGES.get(kind, problem['msg'])}{shown}".removeprefix(": ")
    return ConfigProblem(path, message)


def _unmarked(location: Sequence[str | int]) -> list[str | int]:
    """Return the path in a JSON value, without pydantic's word before each key (`dict`) and index (`list`)."""
    found, end = [], len(location)
    while end > 1 and location[end - 2] == ("list" if isinstance(location[end - 1], int) else "dict"):
        found.append(location[end - 1])
        end -= 2
    return [*location[:end], *reversed(found)]


def _keys(model: type[pydantic.BaseModel], path: list[str]) -> list[str]:
    """Return the keys that the table at `path` may have."""
    table: Any = model
    for part in path:
        if not part.isdecimal():  # a number is an index in a list of tables
            table = _table(table.model_fields[part].annotation)
    return list(table.model_fields)


def _table(annotation: Any) -> Any:
    """Return the table type in `Table`, `Table | None` or `tuple[Table, ...]`."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) in {typing.Union, tuple}:
        return typing.get_args(annotation)[0]
    return annotation
