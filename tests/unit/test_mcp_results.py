"""Answers of MCP servers as results: texts, files, structured content, resources and links to them."""

import base64
from typing import Any

import pytest
from foldlog.adapters.mcp.results import outcome
from foldlog.runtime import File, ToolFailed
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
PICTURE = ImageContent(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png")
FILE = File.from_bytes(PNG, media_type="image/png")
NOTES = EmbeddedResource(type="resource", resource=TextResourceContents(uri="file:///n.txt", text="by hand"))
LINK = ResourceLink(type="resource_link", uri="file:///a.png", name="a.png")
TOOL = Tool(name="look", input_schema={"type": "object"})


def text(value: str) -> TextContent:
    return TextContent(type="text", text=value)


def result(*content: ContentBlock, structured: Any = None, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=list(content), structured_content=structured, is_error=is_error)


@pytest.mark.parametrize(
    ("content", "structured", "expected"),
    [
        ([text("one"), text("two")], None, "one\ntwo"),
        ([NOTES], None, "file:///n.txt\nby hand"),
        ([text("Here:"), NOTES], None, "Here:\nfile:///n.txt\nby hand"),
        ([], {"width": 1}, {"width": 1}),
        ([PICTURE], None, [FILE]),
        ([PICTURE], {"width": 1}, ['{"width": 1}', FILE]),
        ([text("1 wide"), PICTURE], {"width": 1}, ["1 wide", FILE]),
        ([NOTES, PICTURE], None, ["file:///n.txt\nby hand", FILE]),
    ],
)
def test_an_answer_is_text_or_structured_content_or_texts_and_files(
    content: list[ContentBlock], structured: Any, expected: Any
) -> None:
    assert outcome(TOOL, result(*content, structured=structured)) == expected


def test_a_link_to_a_resource_reaches_the_model_as_it_is_and_is_not_followed() -> None:
    assert '"uri":"file:///a.png"' in outcome(TOOL, result(LINK))
    link, picture = outcome(TOOL, result(LINK, PICTURE))
    assert '"uri":"file:///a.png"' in link
    assert picture == FILE


def test_a_resource_whose_bytes_are_empty_or_are_no_base64_is_told() -> None:
    empty = BlobResourceContents(uri="file:///a.pdf", blob="", mime_type="application/pdf")
    told = outcome(TOOL, result(EmbeddedResource(type="resource", resource=empty)))
    assert told == "[application/pdf without content]"
    broken = ImageContent(type="image", data="?", mime_type="image/png")
    with pytest.raises(ToolFailed, match="image/png that is not base64"):
        outcome(TOOL, result(broken))


def test_a_failure_with_a_picture_keeps_no_bytes() -> None:
    with pytest.raises(ToolFailed, match="It broke") as caught:
        outcome(TOOL, result(text("It broke"), PICTURE, is_error=True))
    assert PICTURE.data not in str(caught.value.result)
