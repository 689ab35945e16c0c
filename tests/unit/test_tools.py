"""A function as a tool: the schema that the model sees, the arguments that it sends, the result that it gets."""

import asyncio
import base64
import dataclasses
import datetime as dt
import enum
import functools
import threading
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jsonschema
import msgspec
import pydantic
import pytest
from foldlog.eventlog.errors import ConfigError
from foldlog.eventlog.events import Event
from foldlog.runtime.ports.tools import ToolContextPort, ToolFailed
from foldlog.runtime.tools.context import ToolContext
from foldlog.runtime.tools.decorator import PythonTool, expose, tool
from foldlog.runtime.tools.docstrings import read_docstring
from foldlog.runtime.tools.functions import INLINE

if TYPE_CHECKING:
    from collections.abc import Callable


class Recorder:
    """The context of a call, as far as a tool sees it."""

    tool_call_id = "call-1"
    idempotency_key = "key-1"

    def __init__(self) -> None:
        self.progressed: list[tuple[float, float | None, str]] = []

    def emit(self, event: Event) -> None:
        raise AssertionError(event)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        self.progressed.append((done, total, message))


class Point(pydantic.BaseModel):
    x: int
    y: int = 0


class Reading(pydantic.BaseModel):
    values: list[float]


class Node(pydantic.BaseModel):
    value: int
    children: list["Node"] = []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(msgspec.Struct):
    left: int
    right: Any


@dataclasses.dataclass
class Box:
    tags: set[str]
    inner: Any = None


async def call(called: PythonTool[..., Any], context: Any = None, /, **arguments: Any) -> Any:
    return await called.call(arguments, context or Recorder())


# --- specification ----------------------------------------------------------------------------------------------------


def test_a_bare_tool_has_the_defaults_of_the_contract() -> None:
    @tool
    def lookup(city: str) -> str:
        """Look a city up."""
        return city

    spec = lookup.spec
    assert (spec.name, spec.description, spec.source) == ("lookup", "Look a city up.", "python")
    assert (spec.effect, spec.lock, spec.exclusive) == ("unsafe", "run", False)
    assert (spec.timeout_s, spec.max_attempts) == (60.0, 1)
    assert spec.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }


def test_every_option_of_a_tool_reaches_its_specification() -> None:
    @tool(name="n", description="d", effect="pure", parallel=False, timeout_s=None, max_attempts=3)
    def lookup() -> None:
        """Not this."""

    spec = lookup.spec
    assert (spec.name, spec.description, spec.effect, spec.exclusive) == ("n", "d", "pure", True)
    assert (spec.timeout_s, spec.max_attempts) == (None, 3)
    assert spec.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_tool_is_still_the_function() -> None:
    @tool(effect="pure")
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert add(1) == 2
    assert add(1, b=2) == 3
    assert (add.__name__, add.__doc__, add.__module__) == ("add", "Add.", __name__)
    assert repr(add) == "<tool add>"


def test_the_schema_says_defaults_choices_constraints_and_nested_models_in_place() -> None:
    @tool
    def draw(
        at: Point,
        many: list[Point] | None = None,
        colour: Colour = Colour.RED,
        style: Literal["line", "dot"] = "line",
        width: Annotated[int, pydantic.Field(ge=1)] = 2,
    ) -> None: ...

    schema = draw.spec.parameters
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "$defs" not in schema
    assert schema["required"] == ["at"]
    point = {
        "type": "object",
        "title": "Point",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
        "required": ["x"],
    }
    assert schema["properties"]["at"] == point
    assert schema["properties"]["many"]["anyOf"] == [{"type": "array", "items": point}, {"type": "null"}]
    colour_schema = {"type": "string", "title": "Colour", "enum": ["red", "blue"], "default": "red"}
    assert schema["properties"]["colour"] == colour_schema
    assert schema["properties"]["style"] == {"enum": ["line", "dot"], "type": "string", "default": "line"}
    assert schema["properties"]["width"] == {"minimum": 1, "type": "integer", "default": 2}


def test_a_type_that_contains_itself_keeps_one_definition() -> None:
    @tool
    def plant(root: Node, point: Point) -> None: ...

    schema = plant.spec.parameters
    assert schema["properties"]["root"] == {"$ref": "#/$defs/Node"}
    assert list(schema["$defs"]) == ["Node"]
    planted = {"root": {"value": 1, "children": [{"value": 2}]}, "point": {"x": 1}}
    jsonschema.validate(planted, schema, cls=jsonschema.Draft202012Validator)


def test_a_default_that_json_cannot_hold_is_left_out_of_the_schema() -> None:
    @tool
    def lookup(city: Annotated[Any, "anything"] = object) -> None: ...

    assert lookup.spec.parameters["properties"] == {"city": {}}


async def test_parameters_may_have_any_name() -> None:
    @tool
    def odd(_private: int, schema: int, model_config: int, copy: int, p0: int, self: int) -> list[int]:
        return [_private, schema, model_config, copy, p0, self]

    assert list(odd.spec.parameters["properties"]) == [
        "_private",
        "schema",
        "model_config",
        "copy",
        "p0",
        "self",
    ]
    assert await call(odd, _private=1, schema=2, model_config=3, copy=4, p0=5, self=6) == [1, 2, 3, 4, 5, 6]


def test_descriptions_come_from_the_docstring_unless_the_annotation_has_one() -> None:
    @tool
    def lookup(
        city: str, days: Annotated[int, pydantic.Field(description="From the field.")], unit: str = "C"
    ) -> str:
        """Look the weather up.

        For any city.

        Args:
            city: The city,
                with its country.
            days (int): Not this.
            unit: C or F.

        Returns:
            What it is like.
        """
        return f"{city}{days}{unit}"

    properties = lookup.spec.parameters["properties"]
    assert lookup.spec.description == "Look the weather up.\n\nFor any city."
    assert properties["city"]["description"] == "The city, with its country."
    assert properties["days"]["description"] == "From the field."
    assert properties["unit"]["description"] == "C or F."


def test_sphinx_fields_are_understood() -> None:
    prose, described = read_docstring(
        """Look up.

        :param city: The city,
            with its country.
        :param int days: How many.
        :returns: The weather.
        """
    )
    assert prose == "Look up."
    assert described == {"city": "The city, with its country.", "days": "How many."}


def test_a_word_with_a_colon_begins_no_section_but_those_that_are_known() -> None:
    assert read_docstring("Look up.\n\nMind this:\n    it is slow.") == (
        "Look up.\n\nMind this:\n    it is slow.",
        {},
    )
    assert read_docstring(None) == ("", {})


# --- the context ------------------------------------------------------------------------------------------------------


async def test_a_context_is_injected_by_its_type_and_not_shown_to_the_model() -> None:
    @tool
    def work(amount: int, whatever: ToolContext) -> str:
        whatever.progress(amount, 2, "half")
        return whatever.idempotency_key

    recorder = Recorder()
    assert list(work.spec.parameters["properties"]) == ["amount"]
    assert await call(work, recorder, amount=1) == "key-1"
    assert recorder.progressed == [(1, 2, "half")]


async def test_a_context_may_be_optional_annotated_or_known_to_the_type_checker_only() -> None:
    @tool
    def optional(context: ToolContext | None = None) -> bool:
        return context is not None

    @tool
    def annotated(context: Annotated[ToolContext, "of this call"]) -> bool:
        return context is not None

    def unseen(context: Any) -> bool:
        return context is not None

    unseen.__annotations__["context"] = "runtime.ToolContext"
    for each in (optional, annotated, tool(unseen)):
        assert each.spec.parameters["properties"] == {}
        assert await call(each) is True
    assert optional() is False


async def test_a_context_may_be_the_port_with_the_type_of_its_dependencies() -> None:
    @tool
    def bare(amount: int, context: ToolContextPort) -> bool:
        return context is not None

    @tool
    def typed(amount: int, context: ToolContextPort[Point]) -> bool:
        return context is not None

    @tool
    def optional(
        amount: int, context: Annotated[ToolContextPort[Point], "of this call"] | None = None
    ) -> bool:
        return context is not None

    for each, deps in ((bare, None), (typed, Point), (optional, Point)):
        assert list(each.spec.parameters["properties"]) == ["amount"]
        assert each.deps_type is deps
        assert await call(each, amount=1) is True


async def test_the_model_cannot_pass_the_context_itself() -> None:
    @tool
    def work(context: ToolContext) -> None: ...

    with pytest.raises(ToolFailed, match="context: there is no such parameter"):
        await call(work, context="mine")


# --- signatures that are refused --------------------------------------------------------------------------------------


def _args(*names: str) -> None: ...
def _kwargs(**names: str) -> None: ...
def _positional(city: str, /) -> None: ...
def _bare(city) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
def _method(self) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
def _opaque(lock: threading.Thread) -> None: ...
def _function(then: "Callable[[int], int]") -> None: ...
def _unresolvable(city: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _field(city: str = pydantic.Field(default="x")) -> None: ...
def _two(first: ToolContext, second: ToolContext) -> None: ...
def _generator(city: str) -> Any:
    yield city


@pytest.mark.parametrize(
    ("function", "parameter", "message"),
    [
        (_args, "names", "name each parameter"),
        (_kwargs, "names", "name each parameter"),
        (_positional, "city", "positional-only"),
        (_bare, "city", "no type annotation"),
        (_method, "self", "decorate the bound method"),
        (_opaque, "lock", "no JSON Schema"),
        (_function, "then", "cannot be resolved"),
        (_unresolvable, "city", "cannot be resolved"),
        (_field, "city", "write Annotated"),
        (_two, "second", "are both a ToolContext"),
        (_generator, "", "is a generator"),
    ],
)
def test_an_unsupported_signature_is_refused_by_function_and_parameter(
    function: Any, parameter: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        tool(function)
    assert function.__name__ in str(caught.value)
    assert parameter in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a b"}, "the tool name 'a b'"),
        ({"effect": "none"}, "effect 'none' is none of pure, idempotent, unsafe"),
        ({"timeout_s": 0}, "timeout_s must be more than 0"),
        ({"max_attempts": 0}, "max_attempts must be at least 1"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tool(**{"name": "n", **options})(lambda: None)


def test_a_function_without_a_name_needs_one() -> None:
    with pytest.raises(ConfigError, match="name="):
        tool(functools.partial(max, 1))
    with pytest.raises(ConfigError, match="lambda"):
        tool(lambda: None)


# --- calls ------------------------------------------------------------------------------------------------------------


async def test_arguments_are_validated_and_converted_before_the_function_sees_them() -> None:
    seen: list[Any] = []

    @tool
    def take(
        at: Point, day: dt.date, pair: tuple[int, str], tags: set[str], by: Decimal, colour: Colour
    ) -> None:
        seen.extend([at, day, pair, tags, by, colour])

    await call(take, at={"x": 1}, day="2026-01-02", pair=[1, "a"], tags=["a"], by="0.10", colour="red")
    assert seen == [Point(x=1), dt.date(2026, 1, 2), (1, "a"), {"a"}, Decimal("0.10"), Colour.RED]


async def test_an_argument_left_out_is_the_functions_own_default() -> None:
    marker: list[int] = []

    @tool
    def same(value: Any = marker) -> bool:
        return value is marker

    assert await call(same) is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "invalid arguments: days: is required"),
        (
            {"days": "many"},
            "days: Input should be a valid integer, unable to parse string as an integer, not 'many'",
        ),
        ({"days": 1, "at": {"x": "?"}}, "at.x: Input should be a valid integer"),
        ({"days": 1, "dayz": 2}, "dayz: there is no such parameter (parameters: days, at)"),
        ({"days": "x" * 500}, "..."),
        ({"days": "\ud800"}, "invalid arguments"),
    ],
)
async def test_arguments_that_do_not_fit_are_named_to_the_model(
    arguments: dict[str, Any], message: str
) -> None:
    @tool
    def forecast(days: int, at: Point | None = None) -> None:
        raise AssertionError("it must not be called")

    with pytest.raises(ToolFailed) as caught:
        await forecast.call(arguments, Recorder())
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


async def test_every_bad_argument_is_named() -> None:
    @tool
    def forecast(days: int, hours: int) -> None: ...

    with pytest.raises(ToolFailed, match=r"days: .*; hours: is required"):
        await call(forecast, days="x")


async def test_what_a_function_raises_comes_out_as_it_is() -> None:
    @tool
    def fail() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        await call(fail)


async def test_async_functions_run_on_the_loop_and_sync_ones_in_a_thread() -> None:
    @tool
    async def on_loop() -> int:
        return threading.get_ident()

    @tool
    def in_thread() -> int:
        return threading.get_ident()

    assert await call(on_loop) == threading.get_ident()
    assert await call(in_thread) != threading.get_ident()


async def test_sync_functions_run_inline_where_a_simulation_asks_for_it() -> None:
    @tool
    def work() -> int:
        return threading.get_ident()

    token = INLINE.set(True)
    try:
        assert await call(work) == threading.get_ident()
    finally:
        INLINE.reset(token)


async def test_a_cancelled_call_does_not_wait_for_the_thread() -> None:
    started, may_end, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def block() -> None:
        loop.call_soon_threadsafe(started.set)
        may_end.wait()
        ended.set()

    task = asyncio.create_task(call(block))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ended.is_set()
    may_end.set()
    assert await asyncio.to_thread(ended.wait, 10)


async def test_bound_methods_callable_objects_and_partials_are_tools() -> None:
    class Shop:
        async def buy(self, item: str) -> str:
            """Buy."""
            return f"bought {item}"

        async def __call__(self, item: str) -> str:
            return f"called {item}"

    def scale(value: int, by: int) -> int:
        return value * by

    assert await call(tool(Shop().buy), item="x") == "bought x"
    assert await call(tool(name="shop")(Shop()), item="x") == "called x"
    assert await call(tool(name="double")(functools.partial(scale, by=2)), value=2) == 4


# --- results ----------------------------------------------------------------------------------------------------------

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
ID = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("returned", "stored"),
    [
        (None, None),
        (True, True),
        ("text", "text"),
        (1.5, 1.5),
        (2**64 - 1, 2**64 - 1),
        ((1, [2]), [1, [2]]),
        ({"b", "a"}, ["a", "b"]),
        (frozenset({3, 1}), [1, 3]),
        ({1: "a", Colour.RED: "b", ID: "c"}, {"1": "a", "red": "b", str(ID): "c"}),
        (Point(x=1), {"x": 1, "y": 0}),
        (Pair(1, Point(x=2)), {"left": 1, "right": {"x": 2, "y": 0}}),
        (Pair(1, b"\xff"), {"left": 1, "right": "_w=="}),
        (Box({"b", "a"}, Pair(1, None)), {"tags": ["a", "b"], "inner": {"left": 1, "right": None}}),
        (MOMENT, "2026-01-02T03:04:05Z"),
        (Decimal("0.10"), "0.10"),
        (Colour.RED, "red"),
        (ID, str(ID)),
        (b"\xff\x00", base64.urlsafe_b64encode(b"\xff\x00").decode()),
    ],
)
async def test_a_result_becomes_json(returned: Any, stored: Any) -> None:
    @tool
    def give() -> Any:
        return returned

    result = await call(give)
    assert result == stored
    assert msgspec.json.decode(msgspec.json.encode(result)) == stored


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (float("nan"), "the number nan"),
        ({"a": [1, float("inf")]}, r"the number inf at a\[1\]"),
        (Reading(values=[float("nan")]), "the number nan"),
        (Pair(1, float("nan")), "the number nan at right"),
        (2**64, "more than 64 bits"),
        ("\ud800", "not valid Unicode"),
        ({"\ud800": 1}, "not valid Unicode"),
        ({1: "a", "1": "b"}, "two keys that are both written '1'"),
        (object(), "a object"),
        (Pair(1, object()), "object"),
        ({"a": threading.Event()}, "a Event at a"),
        (CIRCLE, "contains itself"),
    ],
    ids=[
        "nan",
        "inf",
        "model",
        "struct",
        "big",
        "surrogate",
        "key",
        "twice",
        "object",
        "inner",
        "event",
        "circle",
    ],
)
async def test_a_result_that_json_cannot_hold_fails_the_call(returned: Any, message: str) -> None:
    @tool
    def give() -> Any:
        return returned

    with pytest.raises(ToolFailed, match=f"the tool returned a value that JSON cannot hold: .*{message}"):
        await call(give)


# --- injected arguments -----------------------------------------------------------------------------------------------


def test_injected_arguments_are_optional_strings_of_a_copy() -> None:
    @tool
    def deploy(service: str) -> None: ...

    before = msgspec.json.encode(deploy.spec)
    exposed = expose(deploy.spec, {"reason": "Why you do it."})
    assert exposed.parameters["properties"]["reason"] == {"type": "string", "description": "Why you do it."}
    assert exposed.parameters["required"] == ["service"]
    assert exposed.parameters["additionalProperties"] is False
    assert msgspec.json.encode(deploy.spec) == before
    exposed.parameters["properties"]["service"]["type"] = "integer"
    assert msgspec.json.encode(deploy.spec) == before


def test_an_injected_name_that_the_tool_has_is_refused_by_both_names() -> None:
    @tool
    def deploy(service: str) -> None: ...

    with pytest.raises(ConfigError, match=r"injected_tool_args.service: the tool 'deploy'"):
        expose(deploy.spec, {"service": "x"})
