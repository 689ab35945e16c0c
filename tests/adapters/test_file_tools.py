"""The file tools as an agent calls them: what they answer, what they refuse, and where they stop."""

import os
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.builtin import Workspace, builtin_tools
from foldlog.adapters.builtin.reading import CHARACTERS_MAX, LINE_CHARACTERS_MAX
from foldlog.adapters.builtin.searching import search
from foldlog.runtime import Agent, Registry, ToolFailed
from foldlog.runtime.ports.tools import Tool


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    place.mkdir()
    return place


class Tools:
    """`await tools("read_file", path="a")`."""

    def __init__(self, root: Path) -> None:
        self.by_name: dict[str, Tool] = {each.spec.name: each for each in builtin_tools(root)}

    async def __call__(self, tool_name: str, **arguments: Any) -> Any:
        return await self.by_name[tool_name].call(arguments, None)  # type: ignore[arg-type]

    async def refused(self, tool_name: str, **arguments: Any) -> str:
        with pytest.raises(ToolFailed) as caught:
            await self(tool_name, **arguments)
        return str(caught.value)


@pytest.fixture
def tools(root: Path) -> Tools:
    return Tools(root)


def test_the_tools_say_what_a_second_run_does_and_which_run_alone(tools: Tools) -> None:
    files = ("read_file", "list_dir", "grep_files", "write_file", "apply_patch")
    assert {
        name: (tools.by_name[name].spec.effect, tools.by_name[name].spec.exclusive) for name in files
    } == {
        "read_file": ("pure", False),
        "list_dir": ("pure", False),
        "grep_files": ("pure", False),
        "write_file": ("idempotent", True),
        "apply_patch": ("unsafe", True),
    }


def test_every_parameter_is_described_to_the_model(tools: Tools) -> None:
    for each in tools.by_name.values():
        assert each.spec.description
        for name, schema in each.spec.parameters["properties"].items():
            assert schema.get("description"), (each.spec.name, name)


def test_an_agent_of_a_stored_configuration_finds_them_in_its_registry(root: Path) -> None:
    agent = Agent("editor", tools=["read_file", "apply_patch"], hitl_tools=["apply_patch"])
    registry = Registry(agents=[agent], tools=builtin_tools(root))
    assert list(registry.resolve(agent)) == ["read_file", "apply_patch"]


# --- read_file --------------------------------------------------------------------------------------------------------


async def test_lines_are_read_with_their_numbers(root: Path, tools: Tools) -> None:
    (root / "a").write_bytes(b"one\r\n\n three\nfour")
    assert await tools("read_file", path="a") == "L1: one\nL2: \nL3:  three\nL4: four"
    assert await tools("read_file", path="a", offset=3, limit=5) == "L3:  three\nL4: four"


async def test_what_is_left_out_says_how_to_go_on(root: Path, tools: Tools) -> None:
    (root / "a").write_text("".join(f"{n}\n" for n in range(1, 8)))
    assert await tools("read_file", path="a", offset=2, limit=3) == (
        "L2: 2\nL3: 3\nL4: 4\n[lines 5 to 7 are left out: continue with offset=5]"
    )
    assert await tools("read_file", path="a", offset=7) == "L7: 7"


async def test_a_long_line_is_cut_with_a_mark(root: Path, tools: Tools) -> None:
    (root / "a").write_text("x" * (LINE_CHARACTERS_MAX + 1234) + "\nshort\n")
    assert await tools("read_file", path="a") == (
        f"L1: {'x' * LINE_CHARACTERS_MAX} [1,234 more characters]\nL2: short"
    )


async def test_many_lines_are_read_in_several_answers_that_give_the_whole(root: Path, tools: Tools) -> None:
    lines = [f"{n:400}" for n in range(1000)]
    (root / "a").write_text("\n".join(lines))
    read, offset = list[str](), 1
    while offset <= len(lines):
        answer = await tools("read_file", path="a", offset=offset)
        assert len(answer) < CHARACTERS_MAX + 200
        shown = [line for line in answer.split("\n") if line.startswith("L")]
        assert shown
        read += shown
        offset += len(shown)
    assert read == [f"L{n}: {line}" for n, line in enumerate(lines, start=1)]


async def test_an_empty_file_says_so(root: Path, tools: Tools) -> None:
    (root / "a").touch()
    assert await tools("read_file", path="a") == "[the file is empty]"
    (root / "b").write_text("\n")
    assert await tools("read_file", path="b") == "L1: "


async def test_bytes_that_are_not_text_are_replaced_and_told(root: Path, tools: Tools) -> None:
    (root / "a").write_bytes(b"caf\xe9\n")
    assert await tools("read_file", path="a") == (
        "L1: caf\ufffd\n[the file is not UTF-8: \ufffd stands for bytes that cannot be shown]"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"path": "none"}, "none: No such file or directory"),
        ({"path": "d"}, "d: Is a directory"),
        ({"path": "../a"}, "../a: is outside the workspace"),
        ({"path": "binary"}, "binary: is a binary file"),
        ({"path": "big"}, "big: is larger than 16,777,216 bytes"),
        ({"path": "a", "offset": 4}, "a: has only 3 lines"),
        ({"path": "a\0"}, "a\\x00: a path cannot hold a NUL character"),
        (
            {"path": "a", "offset": 0},
            "invalid arguments: offset: Input should be greater than or equal to 1, not 0",
        ),
        ({}, "invalid arguments: path: is required"),
    ],
)
async def test_what_cannot_be_read_is_told(
    root: Path, tools: Tools, arguments: dict[str, Any], problem: str
) -> None:
    (root / "a").write_text("1\n2\n3\n")
    (root / "binary").write_bytes(b"\x7fELF\0")
    (root / "d").mkdir()
    with (root / "big").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    assert await tools.refused("read_file", **arguments) == problem


# --- list_dir ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(root: Path) -> Path:
    for name in ("b/deep/er/x", "b/y", "a.txt", "c/z"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "link").symlink_to("/etc")
    os.mkfifo(root / "pipe")
    return root


async def test_a_directory_is_listed_sorted_with_marks(tree: Path, tools: Tools) -> None:
    assert await tools("list_dir") == "a.txt\nb/\nc/\nlink@\npipe?"
    assert await tools("list_dir", path="b") == "deep/\ny"


async def test_a_directory_is_listed_to_a_depth(tree: Path, tools: Tools) -> None:
    assert await tools("list_dir", depth=2) == "a.txt\nb/\nb/deep/\nb/y\nc/\nc/z\nlink@\npipe?"
    assert await tools("list_dir", path="b", depth=9) == "deep/\ndeep/er/\ndeep/er/x\ny"


async def test_of_too_many_entries_the_nearest_are_shown(tree: Path, tools: Tools) -> None:
    assert await tools("list_dir", depth=3, limit=6) == (
        "a.txt\nb/\nb/deep/\nc/\nlink@\npipe?\n[more than 6 entries: list a directory below, or raise limit]"
    )
    assert "[" not in await tools("list_dir", limit=5)


async def test_however_many_are_asked_for_an_answer_has_its_bounds(
    tree: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.adapters.builtin.listing.ENTRIES_TOP", 2)
    monkeypatch.setattr("foldlog.adapters.builtin.searching.MATCHES_TOP", 2)
    (tree / "a.txt").write_text("x\n" * 9)
    assert await tools("list_dir", limit=10**9) == (
        "a.txt\nb/\n[more than 2 entries: list a directory below]"
    )
    assert await tools("grep_files", pattern="x", limit=10**9) == (
        "a.txt:1: x\na.txt:2: x\n[more than 2 matches: narrow the pattern, path or include]"
    )


async def test_an_empty_directory_says_so(root: Path, tools: Tools) -> None:
    assert await tools("list_dir") == "[the directory is empty]"


async def test_a_name_with_a_line_break_stays_on_its_line(root: Path, tools: Tools) -> None:
    (root / "a\nb").touch()
    (root / os.fsdecode(b"caf\xe9")).touch()
    assert await tools("list_dir") == "a\\nb\ncaf\\xe9"


async def test_a_directory_that_cannot_be_read_is_marked(
    tree: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(name: Any, *args: Any, **more: Any) -> int:
        if name == "deep":
            raise PermissionError(13, "Permission denied")
        return real(name, *args, **more)

    monkeypatch.setattr(os, "open", refuse)
    assert await tools("list_dir", path="b", depth=3) == "deep/ [Permission denied]\ny"
    assert await tools.refused("list_dir", path="b/deep") == "b/deep: Permission denied"


async def test_what_is_not_a_directory_is_not_listed(tree: Path, tools: Tools) -> None:
    assert await tools.refused("list_dir", path="a.txt") == "a.txt: Not a directory"
    assert await tools.refused("list_dir", path="link") == "link: is outside the workspace"


# --- grep_files -------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(root: Path) -> Path:
    files = {
        "a.py": b"def one():\r\n    return 1\n",
        "lib/b.py": b"x = 1\ndef two(): pass\n",
        "lib/c.md": b"# def\n",
        "node_modules/d.py": b"def skipped(): pass\n",
        "e.bin": b"def \0",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


async def test_matching_lines_are_found_in_the_order_of_paths(source: Path, tools: Tools) -> None:
    assert await tools("grep_files", pattern=r"^def \w+") == (
        "a.py:1: def one():\nlib/b.py:2: def two(): pass\n"
        "[1 files are left out: binary, too large, or unreadable]"
    )


MORE = "[more than 1 matches: narrow the pattern, path or include]"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"path": "lib"}, "lib/b.py:2: def two(): pass\nlib/c.md:1: # def"),
        ({"path": "lib/b.py"}, "lib/b.py:2: def two(): pass"),
        ({"path": "lib", "include": ["*.md"]}, "lib/c.md:1: # def"),
        ({"include": ["lib/*.py", "*.md"]}, "lib/b.py:2: def two(): pass\nlib/c.md:1: # def"),
        ({"include": ["*.py"], "limit": 1}, f"a.py:1: def one():\n{MORE}"),
        ({"include": ["*.py"], "limit": 2}, "a.py:1: def one():\nlib/b.py:2: def two(): pass"),
        ({"path": "node_modules"}, "node_modules/d.py:1: def skipped(): pass"),
        ({"include": ["*.rs"]}, "No matches found."),
    ],
)  # fmt: skip
async def test_a_search_is_narrowed(
    source: Path, tools: Tools, arguments: dict[str, Any], found: str
) -> None:
    assert await tools("grep_files", pattern="def", **arguments) == found


async def test_a_pattern_is_one_of_python(source: Path, tools: Tools) -> None:
    assert await tools("grep_files", pattern=r"(?i)DEF (?=TWO)", path="lib") == "lib/b.py:2: def two(): pass"
    (source / "ä").write_text("Ärger\n")
    assert await tools("grep_files", pattern=r"\bä\w+(?-i:r)$|(?i:^ärger)", path="ä") == "ä:1: Ärger"
    assert (
        await tools("grep_files", pattern="[[a]", include=["none"]) == "No matches found."
    )  # warns, elsewhere


@pytest.mark.parametrize("pattern", ["[", "(", "(?P<n", "(" * 5000, "a{99999999999}"])
async def test_an_invalid_pattern_is_reported(source: Path, tools: Tools, pattern: str) -> None:
    told = await tools.refused("grep_files", pattern=pattern)
    assert told.startswith(f"the pattern {pattern!r} is not a valid regular expression of Python: ")


def test_a_pattern_that_never_ends_is_stopped_and_what_was_found_before_is_shown(root: Path) -> None:
    (root / "a").write_text("aaab\n")
    (root / "b").write_text("a" * 64 + "!\n")
    found = search(Workspace(root), r"(a+)+b", ".", [], 10, timeout_s=5.0)
    assert found == "a:1: aaab\n[stopped after 5 s: narrow the pattern, path or include]"


def test_a_matcher_that_is_stuck_does_not_take_more_than_it_can_be_sent(root: Path) -> None:
    (root / "a").write_text("a" * 64 + "!\n")
    (root / "b").write_text("b" * 1_000_000)  # more than a pipe holds
    assert search(Workspace(root), r"(a+)+b", ".", [], 10, timeout_s=0.5).startswith("[stopped after 0.5 s")


async def test_links_are_not_searched_and_a_path_outside_is_refused(source: Path, tools: Tools) -> None:
    (source.parent / "secret").write_text("def secret\n")
    (source / "link").symlink_to(source.parent / "secret")
    (source / "dir").symlink_to(source.parent)
    assert "secret" not in await tools("grep_files", pattern="def")
    for path in ("link", "dir", "..", "dir/secret"):
        assert (
            await tools.refused("grep_files", pattern="def", path=path) == f"{path}: is outside the workspace"
        )


async def test_a_long_matching_line_is_cut(root: Path, tools: Tools) -> None:
    (root / "a").write_text("x" * 1000)
    assert await tools("grep_files", pattern="x") == f"a:1: {'x' * 300} [700 more characters]"


# --- write_file -------------------------------------------------------------------------------------------------------


async def test_a_file_is_written_with_its_directories(root: Path, tools: Tools) -> None:
    for _ in range(2):
        assert await tools("write_file", path="d/e/a", content="ä\r\n") == "Wrote 4 bytes to d/e/a."
        assert (root / "d/e/a").read_bytes() == b"\xc3\xa4\r\n"


async def test_an_existing_file_keeps_its_mode(root: Path, tools: Tools) -> None:
    (root / "run.sh").touch(0o755)
    await tools("write_file", path="run.sh", content="#!/bin/sh\n")
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("path", "content", "problem"),
    [
        ("d", "x", "d: Is a directory"),
        ("../a", "x", "../a: is outside the workspace"),
        ("a/b", "x", "a/b: Not a directory"),
        ("b", "a\ud800", "content: character 1 cannot be written as UTF-8"),
        (
            "b",
            "x" * (16 * 1024 * 1024 + 1),
            "content: has 16,777,217 bytes, more than the 16,777,216 of one file",
        ),
    ],
    ids=["directory", "outside", "below a file", "surrogate", "large"],
)
def test_what_cannot_be_written_is_told(root: Path, path: str, content: str, problem: str) -> None:
    (root / "d").mkdir()
    (root / "a").write_text("a")
    (write,) = [each for each in builtin_tools(root) if each.spec.name == "write_file"]
    with pytest.raises(ToolFailed) as caught:
        write(path, content)  # type: ignore[operator]
    assert str(caught.value) == problem
    assert (root / "a").read_text() == "a"


# --- apply_patch ------------------------------------------------------------------------------------------------------


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


async def test_a_patch_changes_files_and_tells_which(root: Path, tools: Tools) -> None:
    (root / "a").write_text("old\n")
    text = patch("*** Add File: d/b", "+x", "*** Update File: a", "@@", "-old", "+new")
    assert await tools("apply_patch", input=text) == "Success. Updated the following files:\nA d/b\nM a"
    assert (root / "a").read_text() == "new\n"
    assert (root / "d/b").read_text() == "x\n"


NO_BEGIN = "invalid patch: The first line of the patch must be '*** Begin Patch'"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "nothing",
            f"apply_patch verification failed: {NO_BEGIN}",
        ),
        (
            patch("*** Update File: a"),
            "apply_patch verification failed: invalid hunk at line 2, Update file hunk for path 'a' is empty",
        ),
        (
            patch("*** Add File: new", "+x", "*** Update File: a", "-missing"),
            "apply_patch verification failed: Failed to find expected lines in {root}/a:\nmissing",
        ),
        (
            patch("*** Add File: new", "+x", "*** Delete File: none"),
            "apply_patch verification failed: Failed to read {root}/none: No such file or directory (os error 2)",
        ),
        (
            patch("*** Add File: new", "+x", "*** Add File: ../b", "+x"),
            "apply_patch verification failed: ../b: is outside the workspace",
        ),
        (patch(), "patch rejected: empty patch"),
    ],
)  # fmt: skip
async def test_a_patch_that_does_not_fit_changes_nothing(
    root: Path, tools: Tools, text: str, problem: str
) -> None:
    (root / "a").write_text("old\n")
    assert await tools.refused("apply_patch", input=text) == problem.replace("{root}", str(root))
    assert await tools("list_dir") == "a"
    assert (root / "a").read_text() == "old\n"


async def test_sections_of_one_file_see_what_those_before_made(root: Path, tools: Tools) -> None:
    (root / "a").write_text("one\n")
    text = patch(
        "*** Update File: a", "@@", "-one", "+two",
        "*** Update File: ./a", "@@", "-two", "+three",
        "*** Add File: b", "+x",
        "*** Update File: b", "*** Move to: c", "@@", "-x", "+y",
    )  # fmt: skip
    await tools("apply_patch", input=text)
    assert (root / "a").read_text() == "three\n"
    assert await tools("list_dir") == "a\nc"
    assert (root / "c").read_text() == "y\n"


@pytest.mark.parametrize(
    "sections",
    [
        ["*** Update File: a", "@@", "-one", "+two", "*** Update File: a", "@@", "-one", "+three"],
        ["*** Update File: a", "@@", "-one", "+two", "*** Update File: link", "@@", "-one", "+three"],
        ["*** Delete File: a", "*** Update File: a", "@@", "-one", "+two"],
        ["*** Delete File: a", "*** Delete File: a"],
        [
            "*** Update File: a",
            "*** Move to: b",
            "@@",
            "-one",
            "+two",
            "*** Update File: a",
            "@@",
            "-one",
            "+x",
        ],
        ["*** Add File: d", "+x", "*** Add File: d/e", "+x"],
        ["*** Add File: b", "+x", "*** Add File: dir", "+x"],
    ],
)
async def test_a_later_section_that_does_not_fit_what_an_earlier_one_made_changes_nothing(
    root: Path, tools: Tools, sections: list[str]
) -> None:
    (root / "a").write_text("one\n")
    (root / "link").symlink_to("a")
    (root / "dir").mkdir()
    before = await tools("list_dir")
    assert (await tools.refused("apply_patch", input=patch(*sections))).startswith(
        "apply_patch verification failed: "
    )
    assert (root / "a").read_text() == "one\n"
    assert await tools("list_dir") == before
