"""Python functions as tools: the schema comes from the signature, arguments are validated, results become JSON.

    @tool(effect="pure")
    async def lookup(city: str, context: ToolContext) -> Weather:
        "The weather of a city."

The schema and its validator are built once, when the function is decorated.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, cast, overload

import msgspec
import pydantic
import pydantic_core
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from ...eventlog.errors import ConfigError
from ...eventlog.events import OnError, OnTimeout, ToolEffect, ToolSpec
from ...eventlog.names import check_name
from ...projections.retrieval import SOURCE as RETRIEVAL
from ...projections.retrieval import of_others
from ..ports.files import is_content
from ..ports.json_values import NotJson, as_json
from ..ports.runnable import DepsT, DepsT_contra
from ..ports.tools import InvalidArguments, ToolContextPort, in_a_line, unencodable
from .compensation import Compensate, is_planning, planned_call
from .docstrings import read_docstring
from .functions import caller_of
from .signatures import ContextFifth, ContextFirst, ContextFourth, ContextSecond, ContextThird, P, R

if TYPE_CHECKING:
    from ..ports.runnable import Runnable

_EFFECTS: Final = typing.get_args(ToolEffect)
_ON_ERROR: Final = typing.get_args(OnError)
_SHOWN_CHARACTERS_MAX: Final = 80
_SCOPE_CHARACTERS_MAX: Final = 200


class PythonTool(Generic[P, R, DepsT_contra]):
    """A function that an agent can call; calling it as a function calls the function. Made by `tool`.

    `spec` is its specification for the log and the model, `function` the function itself, `starts` the runnable that
    its calls run, if it was made from an agent, a swarm or a loop. `wants_deps`: its context is a `ToolContext[...]` of
    some type, `DepsT_contra` for type checkers.
    """

    def __init__(self, function: Callable[P, R], spec: ToolSpec, arguments: _Arguments) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.spec = spec
        self.starts: Runnable[Any] | None = None
        self.takes_context = arguments.context is not None
        self.deps_type = arguments.deps_type
        self.wants_deps = arguments.deps_type is not None
        self.compensate: Compensate | None = None
        """Names the call that undoes a call (`compensation`); null for a tool without one."""
        self.rollback_hint = ""
        """Instructions for a person who undoes a call."""
        self.once: Callable[[dict[str, Any]], object] | None = None
        """Returns the key of a call, of which the namespace has one outcome; null for a tool without keys."""
        self._arguments = arguments
        self._call = caller_of(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function: nothing is validated, converted or injected. A compensation only names the call."""
        if is_planning():
            return cast("R", planned_call(self.spec.name, self.function, args, kwargs))
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort[DepsT_contra]) -> Any:
        """Run one attempt and return JSON builtins, or content: a `File`, or a list of texts and files.

        Raises `ToolFailed` for arguments that do not match, for a result that JSON cannot hold (in doubt: the function
        has run), and anything that the function raises. A synchronous function runs in a thread, which a cancellation
        abandons but cannot stop.
        """
        result = await self.value(arguments, context)
        if is_content(result):
            return result
        try:
            return as_json(result)
        except NotJson as error:
            raise unencodable(error) from None

    async def value(self, arguments: Mapping[str, Any], context: ToolContextPort[DepsT_contra]) -> Any:
        """Run one attempt as `call` does, and return the function's result unchanged."""
        keywords = self._arguments.validate(arguments)
        if self._arguments.context is not None:
            keywords[self._arguments.context] = context
        return await self._call(**keywords)


class Decorate(Protocol):
    """Makes a function a tool."""

    @overload
    def __call__(self, function: ContextFirst[P, R, DepsT], /) -> PythonTool[P, R, DepsT]: ...

    @overload
    def __call__(self, function: ContextSecond[P, R, DepsT], /) -> PythonTool[P, R, DepsT]: ...

    @overload
    def __call__(self, function: ContextThird[P, R, DepsT], /) -> PythonTool[P, R, DepsT]: ...

    @overload
    def __call__(self, function: ContextFourth[P, R, DepsT], /) -> PythonTool[P, R, DepsT]: ...

    @overload
    def __call__(self, function: ContextFifth[P, R, DepsT], /) -> PythonTool[P, R, DepsT]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> PythonTool[P, R]: ...


@overload
def tool(function: ContextFirst[P, R, DepsT], /) -> PythonTool[P, R, DepsT]: ...


@overload
def tool(function: ContextSecond[P, R, DepsT], /) -> PythonTool[P, R, DepsT]: ...


@overload
def tool(function: ContextThird[P, R, DepsT], /) -> PythonTool[P, R, DepsT]: ...


@overload
def tool(function: ContextFourth[P, R, DepsT], /) -> PythonTool[P, R, DepsT]: ...


@overload
def tool(function: ContextFifth[P, R, DepsT], /) -> PythonTool[P, R, DepsT]: ...


@overload
def tool(function: Callable[P, R], /) -> PythonTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: ToolEffect = "unsafe",
    on_error: OnError = "doubt",
    on_timeout: OnTimeout = "error",
    parallel: bool = True,
    timeout_s: float | None = 60.0,
    max_attempts: int = 1,
    slot: str | None = None,
    once: Callable[[dict[str, Any]], object] | None = None,
    scope: str | None = None,
    compensate: Compensate | None = None,
    rollback_hint: str = "",
) -> Decorate: ...


def tool(  # noqa: PLR0913 - each an option of its own
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: ToolEffect = "unsafe",
    on_error: OnError = "doubt",
    on_timeout: OnTimeout = "error",
    parallel: bool = True,
    timeout_s: float | None = 60.0,
    max_attempts: int = 1,
    slot: str | None = None,
    once: Callable[[dict[str, Any]], object] | None = None,
    scope: str | None = None,
    compensate: Compensate | None = None,
    rollback_hint: str = "",
) -> Any:
    """Make a function a tool; usable bare and with arguments.

    `name` and `description` default to the function's name and docstring. `effect` is the effect of running one call
    twice: `pure` none, `idempotent` the same as once, `unsafe` unknown, so such a call is never repeated without a
    decision. An unsafe call that started and then timed out or raised anything but `ToolFailed` is in doubt: its
    postcondition decides, or else a person. With `on_error="report"` the model is told instead that the call failed,
    and may call again. `on_timeout="partial"` gives the model the last `ToolContext.partial` of a call that timed out,
    if there is one, instead of an error; never of a call in doubt. `parallel=False` runs the call alone among its run's
    calls. `timeout_s` bounds one attempt (None: no bound); `max_attempts` counts attempts of pure and idempotent tools.
    `slot` names a resource that only one call may use at a time, such as a workspace: of all calls of tools with this
    slot one runs at a time, in any run and process of the namespace. `once` returns a key from the arguments: of all
    calls with this key in the `scope` (default: the tool's name), in any run of the namespace, one runs, and the others
    get its outcome. `compensate` names the call that undoes a call, from its arguments and its result, for
    `Runtime.rollback`: `lambda args, result: refund_back(order=args["order"])`; `rollback_hint` tells a person how to
    undo it by hand.

    Raises `ConfigError`, which names the function and the parameter, for a signature that has no schema: `*args`,
    `**kwargs`, positional-only, missing or unsupported annotations.
    """

    def decorate(function: Callable[P, R]) -> PythonTool[P, R]:
        tool_name = _checked_name(function, name)
        _check_options(tool_name, effect, on_error, timeout_s, max_attempts)
        _check_on_timeout(tool_name, on_timeout, effect, on_error)
        if slot == "":
            raise ConfigError(f"tool {tool_name!r}: slot must be a name, or None")
        _check_once(tool_name, once, scope)
        _check_compensation(tool_name, compensate, rollback_hint, effect)
        prose, described = read_docstring(function.__doc__)
        arguments = _read_signature(tool_name, function, described)
        spec = ToolSpec(
            name=tool_name,
            description=prose if description is None else description,
            parameters=arguments.schema,
            effect=effect,
            on_error=on_error,
            on_timeout=on_timeout,
            lock="run",
            exclusive=not parallel,
            timeout_s=timeout_s,
            max_attempts=max_attempts,
            slot=slot,
            once=None if once is None else scope or tool_name,
        )
        made: PythonTool[P, R] = PythonTool(function, spec, arguments)
        made.once = once
        made.compensate, made.rollback_hint = compensate, rollback_hint
        return made

    return decorate if function is None else decorate(function)


def expose(spec: ToolSpec, injected: Mapping[str, str]) -> ToolSpec:
    """Return the tool as the model sees it: a deep copy whose schema has each injected name as an optional string.

    Without injected names, and for a tool that already has them, it is the tool's own. Raises `ConfigError` if the tool
    has a parameter of that name.
    """
    if not injected or spec.source == RETRIEVAL:
        return spec
    check_injected(spec, injected)
    parameters = copy.deepcopy(spec.parameters)
    added = {name: {"type": "string", "description": text} for name, text in injected.items()}
    parameters["properties"] = {**parameters.get("properties", {}), **added}
    return msgspec.structs.replace(spec, parameters=parameters)


def without_injected(spec: ToolSpec, injected: Mapping[str, str]) -> ToolSpec:
    """Return the tool without the parameters that `expose` added."""
    added = of_others(spec.name, spec.source, injected)
    if not added:
        return spec
    own = {
        name: schema for name, schema in spec.parameters.get("properties", {}).items() if name not in added
    }
    return msgspec.structs.replace(spec, parameters={**spec.parameters, "properties": own})


def check_injected(spec: ToolSpec, injected: Mapping[str, str]) -> None:
    """Raise `ConfigError` if the tool has a parameter with the name of an injected one."""
    own = spec.parameters.get("properties", {})
    for name in injected:
        if name in own:
            raise ConfigError(
                f"injected_tool_args.{name}: the tool {spec.name!r} has a parameter {name!r} of its own; "
                "give the injected argument another name"
            )


# --- from a signature to a schema -------------------------------------------------------------------------------------


class _Arguments:
    """A tool's parameters: the schema, the one cached validator, and the parameter that takes the context."""

    def __init__(self, model: type[pydantic.BaseModel], context: str | None, *, deps_type: Any) -> None:
        self.context, self.deps_type = context, deps_type
        self.schema = _plain_schema(model)
        self._names = {field: str(info.alias) for field, info in model.__pydantic_fields__.items()}
        self._validator = model.__pydantic_validator__

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function takes them, without defaults. Raises `InvalidArguments`."""
        try:
            valid = self._validator.validate_json(pydantic_core.to_json(dict(arguments)))
        except pydantic.ValidationError as error:
            raise InvalidArguments(f"invalid arguments: {self._problems(error)}") from None
        except pydantic_core.PydanticSerializationError as error:
            raise InvalidArguments(f"invalid arguments: {error}") from None
        except Exception as error:  # a validator of the parameter's type failed: the function has not run
            raise InvalidArguments(f"invalid arguments: {in_a_line(error)}") from error
        return {self._names[field]: getattr(valid, field) for field in valid.model_fields_set}

    def _problems(self, error: pydantic.ValidationError) -> str:
        return "; ".join(
            self._problem(problem) for problem in error.errors(include_url=False, include_context=False)
        )

    def _problem(self, problem: pydantic_core.ErrorDetails) -> str:
        where = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = ", ".join(self._names.values()) or "none"
            hint = f" (parameters: {known})" if len(problem["loc"]) == 1 else ""
            return f"{where}: there is no such parameter{hint}"
        if problem["type"] == "missing":
            return f"{where}: is required"
        return f"{where}: {problem['msg']}, not {_shown(problem['input'])}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


def _checked_name(function: Callable[..., Any], name: str | None) -> str:
    if name is None and not hasattr(function, "__name__"):
        raise ConfigError(f"the tool {function!r} has no name of its own: use tool(name=...)")
    return check_name("the tool name", function.__name__ if name is None else name)


def _check_options(name: str, effect: str, on_error: str, timeout_s: float | None, max_attempts: int) -> None:
    if effect not in _EFFECTS:
        raise ConfigError(f"tool {name!r}: effect {effect!r} is none of {', '.join(_EFFECTS)}")
    if on_error not in _ON_ERROR:
        raise ConfigError(f"tool {name!r}: on_error {on_error!r} is none of {', '.join(_ON_ERROR)}")
    if timeout_s is not None and not timeout_s > 0:
        raise ConfigError(f"tool {name!r}: timeout_s must be more than 0, not {timeout_s!r}")
    if max_attempts < 1:
        raise ConfigError(f"tool {name!r}: max_attempts must be at least 1, not {max_attempts!r}")


def _check_once(name: str, once: object, scope: object) -> None:
    if once is not None and not callable(once):
        raise ConfigError(
            f"tool {name!r}: once must be a function from the arguments to a key, not {once!r:.60}"
        )
    if inspect.iscoroutinefunction(once):
        raise ConfigError(f"tool {name!r}: once must return a key, and not be an async function")
    if scope is not None and once is None:
        raise ConfigError(f"tool {name!r}: a scope is that of the keys of once: give once, too")
    if scope is not None and not (isinstance(scope, str) and 0 < len(scope) <= _SCOPE_CHARACTERS_MAX):
        raise ConfigError(f"tool {name!r}: scope must be a text of 1 to {_SCOPE_CHARACTERS_MAX} characters")


def _check_compensation(name: str, compensate: object, hint: object, effect: str) -> None:
    if compensate is not None and not callable(compensate):
        raise ConfigError(
            f"tool {name!r}: compensate must be a function of the arguments and the result, not {compensate!r:.60}"
        )
    if not isinstance(hint, str):
        raise ConfigError(f"tool {name!r}: rollback_hint must be a text, not {hint!r:.60}")
    if effect == "pure" and (compensate is not None or hint):
        raise ConfigError(f"tool {name!r} is pure: there is nothing to roll back; declare another effect")


def _check_on_timeout(name: str, on_timeout: str, effect: str, on_error: str) -> None:
    if on_timeout not in {"error", "partial"}:
        raise ConfigError(f"tool {name!r}: on_timeout {on_timeout!r} is none of error, partial")
    if on_timeout == "partial" and effect == "unsafe" and on_error == "doubt":
        raise ConfigError(
            f"tool {name!r}: on_timeout='partial' is never used, because an unsafe call that timed out is in doubt: "
            "declare another effect, or on_error='report'"
        )


def _read_signature(tool_name: str, function: Callable[..., Any], described: Mapping[str, str]) -> _Arguments:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"tool {tool_name!r} is a generator: return the whole result instead")
    contexts: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for parameter in _parameters(tool_name, function):
        annotation = _annotation(tool_name, function, parameter)
        if _is_context(annotation):
            contexts[parameter.name] = _deps_type(annotation, parameter.annotation)
        else:
            # Numbered fields under an alias: a parameter may have any name, even one that pydantic's models use.
            fields[f"p{len(fields)}"] = _field(
                tool_name, parameter, annotation, described.get(parameter.name)
            )
    if len(contexts) > 1:
        raise ConfigError(
            f"tool {tool_name!r}: {' and '.join(contexts)} are both a ToolContext; one is enough"
        )
    context = next(iter(contexts), None)
    return _build(tool_name, fields, context, deps_type=next(iter(contexts.values()), None))


def _parameters(tool_name: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise ConfigError(
            f"tool {tool_name!r} has no readable signature: wrap it in a Python function"
        ) from None
    for parameter in parameters:
        if problem := _unsupported(parameter):
            raise _bad_parameter(tool_name, parameter.name, problem)
    return parameters


def _unsupported(parameter: inspect.Parameter) -> str:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            return f"{parameter} cannot be described to a model; name each parameter"
        case inspect.Parameter.POSITIONAL_ONLY:
            return "it is positional-only; tools are called by name"
        case _ if parameter.annotation is parameter.empty and parameter.name in {"self", "cls"}:
            return "decorate the bound method instead: tool(instance.method)"
        case _ if parameter.annotation is parameter.empty:
            return "it has no type annotation"
        case _ if isinstance(parameter.default, FieldInfo):
            return "write Annotated[type, Field(...)] instead of a Field as the default"
        case _:
            return ""


def _bad_parameter(tool_name: str, parameter: str, problem: str) -> ConfigError:
    return ConfigError(f"tool {tool_name!r}, parameter {parameter!r}: {problem}")


def _annotation(tool_name: str, function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the parameter's type. A `ToolContext` imported only for the type checker is recognised by its name."""
    written = parameter.annotation
    holder = types.SimpleNamespace(__annotations__={"it": written})
    try:
        return typing.get_type_hints(holder, globalns=_globals(function), include_extras=True)["it"]
    except Exception as error:  # noqa: BLE001 - an annotation is any expression
        name = written.partition("[")[0].strip() if isinstance(written, str) else ""
        if name.rpartition(".")[2] == "ToolContext":
            return ToolContextPort
        raise _bad_parameter(
            tool_name,
            parameter.name,
            f"its type {written!r} cannot be resolved ({error}); it must be importable at module level",
        ) from None


def _globals(function: Callable[..., Any]) -> dict[str, Any]:
    innermost = inspect.unwrap(function)
    if not hasattr(innermost, "__globals__"):
        innermost = getattr(innermost, "func", None) or type(innermost).__call__
    return dict(getattr(inspect.unwrap(innermost), "__globals__", {}))


def _is_context(annotation: Any) -> bool:
    if typing.get_origin(annotation) is typing.Annotated:
        return _is_context(typing.get_args(annotation)[0])
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return any(_is_context(member) for member in typing.get_args(annotation))
    if (typing.get_origin(annotation) or annotation) is ToolContextPort:
        return True
    return any(
        (base.__module__, base.__name__) == (f"{__package__}.context", "ToolContext")
        for base in getattr(typing.get_origin(annotation) or annotation, "__mro__", ())
    )


def _deps_type(annotation: Any, written: Any) -> Any:
    """Return the type of dependencies that a context is annotated with; null for none, `Any` for an unknown one."""
    if annotation is ToolContextPort:
        return Any if isinstance(written, str) and "[" in written else None
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) in {typing.Annotated, types.UnionType, typing.Union}:
        found = (_deps_type(each, written) for each in arguments if _is_context(each))
        return next((each for each in found if each is not None), None)
    wanted = arguments[0] if arguments else None
    return None if wanted in {Any, types.NoneType} else wanted


def _field(
    tool_name: str, parameter: inspect.Parameter, annotation: Any, description: str | None
) -> tuple[Any, FieldInfo]:
    """Return the arguments of `pydantic.create_model` for one parameter; a `Field` in the annotation wins."""
    try:
        pydantic.TypeAdapter(annotation).json_schema()
    except (pydantic.PydanticUserError, NameError, TypeError, ValueError) as error:
        problem = f"its type has no JSON Schema ({str(error).splitlines()[0]})"
        raise _bad_parameter(tool_name, parameter.name, problem) from None
    default = ... if parameter.default is parameter.empty else parameter.default
    written = [extra for extra in getattr(annotation, "__metadata__", ()) if isinstance(extra, FieldInfo)]
    if description and not any(extra.description for extra in written):
        return annotation, pydantic.Field(default, alias=parameter.name, description=description)
    return annotation, pydantic.Field(default, alias=parameter.name)


def _build(tool_name: str, fields: dict[str, Any], context: str | None, *, deps_type: Any) -> _Arguments:
    config = pydantic.ConfigDict(extra="forbid", validate_default=False)
    try:
        model: type[pydantic.BaseModel] = pydantic.create_model("Arguments", __config__=config, **fields)
        return _Arguments(model, context, deps_type=deps_type)
    except (pydantic.PydanticUserError, NameError, TypeError, ValueError) as error:
        raise ConfigError(f"tool {tool_name!r}: its signature has no JSON Schema ({error})") from None


class _Plain(GenerateJsonSchema):
    """JSON Schema without generated titles, and without warnings for defaults that JSON cannot hold."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own form

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _plain_schema(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    """Return the model's schema as one closed object; `$defs` remain only for types that contain themselves."""
    schema = model.model_json_schema(by_alias=True, schema_generator=_Plain)
    definitions = schema.pop("$defs", {})
    schema.pop("title", None)
    plain: dict[str, Any] = _inline(schema, definitions)
    plain.setdefault("properties", {})
    if used := _reachable(plain, definitions):
        plain["$defs"] = used
    return plain


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    name = _definition(node)
    if name is None or _contains_itself(name, definitions):
        return {key: _inline(value, definitions) for key, value in node.items()}
    beside = {key: value for key, value in node.items() if key != "$ref"}
    return _inline({**definitions[name], **beside}, definitions)


def _definition(node: Mapping[str, Any]) -> str | None:
    reference = node.get("$ref")
    return reference.removeprefix("#/$defs/") if isinstance(reference, str) else None


def _mentioned(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_mentioned, node))
    if not isinstance(node, dict):
        return set()
    name = _definition(node)
    return set().union({name} if name else set(), *map(_mentioned, node.values()))


def _closure(names: set[str], definitions: Mapping[str, Any]) -> set[str]:
    """Return the definitions that can be reached from these, including themselves."""
    found: set[str] = set()
    todo = set(names)
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= _mentioned(definitions[name]) - found
    return found


def _contains_itself(name: str, definitions: Mapping[str, Any]) -> bool:
    return name in _closure(_mentioned(definitions[name]), definitions)


def _reachable(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    return {name: definitions[name] for name in sorted(_closure(_mentioned(schema), definitions))}
