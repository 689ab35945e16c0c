"""Arguments that are drawn fit the tool: numbers, lists and nested objects, what is required always; and calls run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from foldlog.replay import check_parity
from foldlog.replay.strategies.runs import calls
from foldlog.replay.strategies.schemas import fitting
from foldlog.runtime import Agent, tool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

RAN: list[str] = []


class Size(StrEnum):
    SMALL, LARGE = "small", "large"


class Line(BaseModel):
    """One line of an order."""

    item: str = Field(min_length=3)
    count: int = Field(ge=1, lt=100)
    price: float = Field(gt=0)
    size: Size = Size.SMALL
    notes: list[str] = []


class Tree(BaseModel):
    """A tree."""

    name: str
    below: list[Tree] = []


@tool(effect="pure")
def order(
    lines: Annotated[list[Line], Field(min_length=1)], by: Literal["post", "train"], tip: int | None = None
) -> str:
    """Order something."""
    RAN.append("order")
    return f"{sum(line.count for line in lines)} by {by}, {tip}"


@tool(effect="pure")
def plant(tree: Tree, at: tuple[int, int], tags: dict[str, bool]) -> str:
    """Plant a tree."""
    RAN.append("plant")
    return f"{tree.name} {at} {len(tags)}"


AGENT = Agent(name="gardener", model="scripted:x.json", tools=[order, plant])
SCHEMAS = [each.spec.parameters for each in AGENT.tools.values()]


@pytest.mark.parametrize("schema", SCHEMAS, ids=list(AGENT.tools))
@given(data=st.data())
def test_what_is_drawn_fits_the_schema(schema: dict[str, Any], data: st.DataObject) -> None:
    drawn = data.draw(fitting(schema))
    Draft202012Validator(schema).validate(drawn)
    assert set(schema["required"]) <= drawn.keys()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 5, "exclusiveMinimum": 3, "maximum": 20},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": ["string", "null"], "maxLength": 2},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "uniqueItems": True, "maxItems": 2},
        {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"required": ["b"]}]},
        {"oneOf": [{"type": "integer", "minimum": 5}, {"type": "string", "pattern": "^x+$"}]},
        {"type": "string", "format": "date"},
        {"enum": [1, "a", None]},
        {"required": ["free"]},
    ],
    ids=str,
)
@given(data=st.data())
def test_each_keyword_is_kept(schema: dict[str, Any], data: st.DataObject) -> None:
    Draft202012Validator(schema).validate(data.draw(fitting(schema)))


@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=st.lists(calls(AGENT.tools), min_size=8, max_size=8))
async def test_every_call_whose_arguments_were_drawn_to_fit_really_runs(drawn: list[dict[str, Any]]) -> None:
    asked = [
        call["name"] for call in drawn if isinstance(call["arguments"], dict) and call["name"] in AGENT.tools
    ]
    calls_of_step = [{**call, "id": f"call-{index}"} for index, call in enumerate(drawn)]
    RAN.clear()
    report = await check_parity(AGENT, "go", script=[{"tool_calls": calls_of_step}, {"text": ["done"]}])
    assert report.equal, report.render()
    assert sorted(RAN) == sorted(asked * 2)  # on each executor
    assert len(asked) >= len(drawn) // 4
