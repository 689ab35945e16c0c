"""The stored form of a workflow that is a table: its steps, and all that may be wrong with them, found at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

import pydantic
from pydantic import AfterValidator, ConfigDict, Field, JsonValue, StrictFloat, StrictInt, StrictStr

from ....eventlog.errors import AgentConfigError, ConfigError, ConfigProblem
from ....eventlog.events import CallRules
from ...core.postconditions import Postcondition
from ...core.templates import Template
from ...core.workflow.table import OnStepError, Step, cycles
from ...ports.conditions import Condition
from ...ports.json_schema import check_output_schema
from ...ports.suggestions import near, nearest, unknown
from ...ports.tools import SIGNAL_NAME
from ..config import JsonObject, Name, Positive, Text, problems_of
from .config import WorkflowRules
from .run import STEP_NAME

INPUT = "input"
"""The name by which templates and conditions refer to the input of the run."""
STEPS_MAX = 1_000
KINDS = ("tool", "agent", "ask", "wait", "sleep")
"""The kinds of steps; each step has exactly one of these keys."""
_OF_KIND = {
    "arguments": ("tool",),
    "approval": ("tool", "ask"),
    "postcondition": ("tool",),
    "retry": ("tool", "agent"),
    "timeout_s": ("tool", "wait"),
    "input": ("agent",),
    "schema": ("ask", "wait"),
}
"""The kinds of steps that a key belongs to, if it does not belong to all."""
_FILLED = ("arguments", "input", "ask", "sleep")
"""The keys of a step that may hold references."""
_RESERVED = frozenset(
    {
        *(
            INPUT,
            "as",
            "break",
            "const",
            "continue",
            "else",
            "false",
            "for",
            "function",
            "if",
            "import",
            "in",
        ),
        *("let", "loop", "namespace", "null", "package", "return", "true", "var", "void", "while"),
    }
)
"""Names that mean something else in a condition."""
_TIMES = frozenset({"seconds", "minutes", "hours", "days", "until"})


def _step_id(value: str) -> str:
    if not STEP_NAME.fullmatch(value):
        raise ValueError(f"{value!r} must be a letter or '_', then at most 63 letters, digits or '_'")
    if value in _RESERVED:
        raise ValueError(f"{value!r} means something else in conditions; name the step otherwise")
    return value


def _signal(value: str) -> str:
    if not SIGNAL_NAME.fullmatch(value):
        raise ValueError(f"a signal is named by letters, digits, '.', '_' and '-', not {value!r}")
    return value


def _schema(value: dict[str, Any]) -> dict[str, Any]:
    check_output_schema(value)
    return value


StepId = Annotated[
    StrictStr,
    AfterValidator(_step_id),
    Field(json_schema_extra={"pattern": f"^{STEP_NAME.pattern}$"}),
]
Seconds = Annotated[StrictFloat, Field(gt=0)]


class StepRetry(pydantic.BaseModel):
    """The number of attempts of a step."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    attempts: Annotated[Positive, Field(le=100)] = 1


class StepConfig(pydantic.BaseModel):
    """A step of a table. It does one of: call a tool, run an agent, ask a person, wait for a signal, sleep."""

    model_config = ConfigDict(
        extra="forbid", defer_build=True, frozen=True, allow_inf_nan=False, serialize_by_alias=True
    )

    id: StepId
    """The name by which other steps refer to it."""
    tool: Name | None = None
    agent: Name | None = None
    """An agent, swarm, loop or workflow, which runs as a child."""
    ask: Text | None = None
    """A question to a person: the message."""
    wait: Annotated[StrictStr, AfterValidator(_signal)] | None = None
    """The name of a signal."""
    sleep: StrictInt | StrictFloat | StrictStr | dict[StrictStr, JsonValue] | None = None
    """Seconds, a time, or a table with `seconds`, `minutes`, `hours`, `days` or `until`."""
    needs: tuple[StepId, ...] = ()
    """Steps that come before it, besides those that it refers to."""
    when: Text | None = None
    """A condition in CEL; a step whose condition is not met is skipped."""
    arguments: JsonObject = {}
    """The arguments of the tool, with references such as `${find.result.mail}`."""
    input: JsonValue = None
    """The input of the agent, with references."""
    schema_: Annotated[JsonObject, AfterValidator(_schema)] | None = Field(default=None, alias="schema")
    """The JSON Schema of an answer (an object), or of a signal's data."""
    approval: Literal["required", "compensation"] | None = None
    """A tool is called only after an approval; a question has to be answered with a yes."""
    postcondition: tuple[JsonObject, ...] = ()
    """Assertions that must hold after the call, besides those of the tool."""
    retry: StepRetry | None = None
    timeout_s: Seconds | None = None
    """The longest time of an attempt at the call, or of the wait."""
    on_error: OnStepError = "fail"
    """The consequence of a failed step: the run ends with an error, goes on with the steps that need it, or ends and is
    rolled back."""

    @property
    def kind(self) -> str:
        """The kind of the step: one of `KINDS`."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def name(self) -> str:
        """The name of its operations, which is part of their place."""
        kind = self.kind
        return kind if kind in {"ask", "sleep"} else str(getattr(self, kind))

    @property
    def attempts(self) -> int:
        """The highest number of attempts."""
        return self.retry.attempts if self.retry is not None else 1

    @property
    def rules(self) -> CallRules | None:
        """The rules of its call; null without any."""
        if self.kind != "tool":
            return None
        approval: Literal["", "tool", "compensation"] = ""
        if self.approval is not None:
            approval = "tool" if self.approval == "required" else "compensation"
        found = CallRules(
            approval=approval,
            attempts=self.retry.attempts if self.retry is not None else None,
            timeout_s=self.timeout_s,
            postcondition=list(self.postcondition),
        )
        return None if found == CallRules() else found


class TableConfig(WorkflowRules):
    """A workflow that is a table of steps."""

    model_config = ConfigDict(
        extra="forbid", defer_build=True, frozen=True, allow_inf_nan=False, serialize_by_alias=True
    )

    steps: Annotated[tuple[StepConfig, ...], Field(min_length=1, max_length=STEPS_MAX)]
    output: JsonValue = ""
    """The output of the run, with references."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools that its steps call, each once, in their order."""
        return tuple(dict.fromkeys(step.tool for step in self.steps if step.tool is not None))

    @property
    def agents(self) -> tuple[str, ...]:
        """The runnables that its steps start, each once, in their order."""
        return tuple(dict.fromkeys(step.agent for step in self.steps if step.agent is not None))

    def plan(self) -> list[Step]:
        """Return the steps with all that they need, by name and by reference."""
        ids = {step.id for step in self.steps}
        return [
            Step(id=step.id, needs=tuple(needs_of(step, ids)), on_error=step.on_error) for step in self.steps
        ]


def read_table(data: Mapping[str, Any]) -> TableConfig:
    """Return the configuration in `data`. Raises `AgentConfigError` with all problems, each with its place."""
    found: list[ConfigProblem] = []
    config: TableConfig | None = None
    try:
        config = TableConfig.model_validate(dict(data))
    except pydantic.ValidationError as error:
        found = problems_of(error, TableConfig)
    found += _problems(data)
    if found or config is None:
        raise table_error(data, found)
    return config


def table_error(data: Mapping[str, Any], found: Iterable[ConfigProblem]) -> AgentConfigError:
    """Return the error with these problems, in the order of the steps."""
    ordered = sorted(found, key=lambda problem: _position(problem.key))
    message = "; ".join(problem.message for problem in ordered)
    name = data.get("name")
    return AgentConfigError(f"workflow {name!r}: {message}" if isinstance(name, str) else message, ordered)


def _position(key: str) -> tuple[int, int]:
    parts = key.split(".")
    is_step = parts[0] == "steps" and len(parts) > 1 and parts[1].isdigit()
    return (1, int(parts[1])) if is_step else (0, 0)


def references(value: Any, where: str) -> Iterator[Template | ConfigProblem]:
    """Yield each text in a JSON value as a template, or as a problem if it cannot be parsed; `where` is its key."""
    match value:
        case str():
            try:
                yield Template(value, where, None)
            except ConfigError as error:
                yield ConfigProblem(where, str(error))
        case Mapping():
            for key, each in value.items():
                yield from references(each, f"{where}.{key}")
        case list() | tuple():
            for index, each in enumerate(value):
                yield from references(each, f"{where}.{index}")
        case _:
            pass


def needs_of(step: StepConfig, ids: Iterable[str]) -> list[str]:
    """Return the steps that a step needs: those it names, and those it refers to."""
    roots = list(step.needs)
    for key in _FILLED:
        for template in references(getattr(step, key), ""):
            roots += template.roots if isinstance(template, Template) else []
    if step.when is not None:
        roots += Condition(step.when, f"step {step.id}: when", [*ids, INPUT]).names
    return [each for each in dict.fromkeys(roots) if each != INPUT]


def input_names(config: TableConfig) -> list[str]:
    """Return the names below `${input...}` that references use, each once."""
    found: list[str] = []
    values = [getattr(step, key) for step in config.steps for key in _FILLED]
    for template in references([*values, config.output], ""):
        paths = template.paths if isinstance(template, Template) else []
        found += [str(path[1]) for path in paths if path[0] == INPUT and len(path) > 1]
    return list(dict.fromkeys(found))


# --- what may be wrong ------------------------------------------------------------------------------------------------


def _problems(data: Mapping[str, Any]) -> list[ConfigProblem]:
    """Return the problems between steps; parts of the wrong shape are left to the validation of the model."""
    steps = data.get("steps")
    tables = (
        [(index, step) for index, step in enumerate(steps or ()) if isinstance(step, Mapping)]
        if isinstance(steps, (list, tuple))
        else []
    )
    ids = [step["id"] for _, step in tables if isinstance(step.get("id"), str)]
    found: list[ConfigProblem] = []
    needs: dict[str, list[str]] = {}
    at: dict[str, int] = {}
    for index, step in tables:
        where, name = f"steps.{index}", step.get("id")
        if isinstance(name, str) and name in at:
            found.append(ConfigProblem(f"{where}.id", f"{where}.id: {name!r} is also step {at[name]}"))
        needed, wrong = _checked(step, where, list(dict.fromkeys(ids)))
        found += [*wrong, *_of_kind(step, where)]
        if isinstance(name, str):
            at.setdefault(name, index)
            needs.setdefault(name, []).extend(needed)
    for cycle in cycles(needs):
        where = f"steps.{at[cycle[0]]}.needs"
        found.append(ConfigProblem(where, f"{where}: a cycle: {' needs '.join(map(repr, cycle))}"))
    ids = list(dict.fromkeys(ids))
    for template in references(data.get("output"), "output"):
        found += (
            [template] if isinstance(template, ConfigProblem) else _unknown("output", template.roots, ids)
        )
    return found


def _checked(
    step: Mapping[str, Any], where: str, ids: Sequence[str]
) -> tuple[list[str], list[ConfigProblem]]:
    """Return the steps that a step needs, and what is wrong with its references."""
    found: list[ConfigProblem] = []
    roots: list[tuple[str, str]] = []
    needs = step.get("needs", ())
    if isinstance(needs, (list, tuple)):
        roots += [(f"{where}.needs", each) for each in needs if isinstance(each, str) and each != INPUT]
        found += _unknown(
            f"{where}.needs", [each for each in needs if isinstance(each, str)], ids, steps=True
        )
    for key in _FILLED:
        for template in references(step.get(key), f"{where}.{key}"):
            if isinstance(template, ConfigProblem):
                found.append(template)
                continue
            place = template.where
            roots += [(place, each) for each in template.roots]
            found += _unknown(place, template.roots, ids)
    when = step.get("when")
    if isinstance(when, str):
        try:
            roots += [
                (f"{where}.when", each) for each in Condition(when, f"{where}.when", [*ids, INPUT]).names
            ]
        except ConfigError as error:
            found.append(ConfigProblem(f"{where}.when", str(error)))
    own = step.get("id")
    itself = next((place for place, each in roots if each == own), None)
    if itself is not None:
        found.append(ConfigProblem(itself, f"{itself}: step {own!r} needs itself"))
    return [each for _, each in roots if each in ids and each != own], found


def _unknown(
    where: str, roots: Iterable[str], ids: Sequence[str], *, steps: bool = False
) -> list[ConfigProblem]:
    known = list(ids) if steps else [*ids, INPUT]
    return [
        ConfigProblem(
            where,
            f"{where}: {unknown('step', each, known)}",
            near(each, known),
        )
        for each in dict.fromkeys(roots)
        if each not in known
    ]


def _of_kind(step: Mapping[str, Any], where: str) -> list[ConfigProblem]:
    """Return what is wrong with the keys of a step for what it does."""
    kinds = [kind for kind in KINDS if step.get(kind) is not None]
    if len(kinds) != 1:
        had = f"it has {' and '.join(map(repr, kinds))}" if kinds else "it has none"
        return [ConfigProblem(where, f"{where}: a step has one of {', '.join(KINDS)}; {had}")]
    (kind,) = kinds
    found = [
        ConfigProblem(
            f"{where}.{key}", f"{where}.{key}: belongs to {_either(of)}, and this step has {kind!r}"
        )
        for key, of in _OF_KIND.items()
        if step.get(key) not in (None, {}, [], ()) and kind not in of  # what is stored has the defaults
    ]
    if kind == "agent" and step.get("input") is None:
        found.append(ConfigProblem(f"{where}.input", f"{where}.input: the agent needs an input"))
    sleep = step.get("sleep")
    if kind == "sleep" and isinstance(sleep, Mapping):
        found += [
            ConfigProblem(f"{where}.sleep", f"{where}.sleep: unknown key {key!r}{nearest(str(key), _TIMES)}")
            for key in sleep
            if key not in _TIMES
        ]
        if not sleep or ("until" in sleep and len(sleep) > 1):
            found.append(
                ConfigProblem(
                    f"{where}.sleep", f"{where}.sleep: give seconds, minutes, hours and days, or until"
                )
            )
    if isinstance(sleep, (int, float)) and not isinstance(sleep, bool) and sleep < 0:
        found.append(ConfigProblem(f"{where}.sleep", f"{where}.sleep: must not be negative, not {sleep:g}"))
    assertions = step.get("postcondition")
    if kind == "tool" and isinstance(assertions, (list, tuple)) and assertions:
        try:
            Postcondition(str(step["tool"]), cast("Any", assertions))
        except ConfigError as error:
            found.append(ConfigProblem(f"{where}.postcondition", f"{where}.postcondition: {error}"))
    return found


def _either(kinds: Sequence[str]) -> str:
    return " or ".join(f"{kind!r}" for kind in kinds)
