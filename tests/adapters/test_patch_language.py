"""The patch language by tables: what is read, where lines are found, what is written, and every message."""

import contextlib
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from foldlog.adapters.builtin.patch_language import (
    AddFile,
    Change,
    Chunk,
    DeleteFile,
    Line,
    PatchSyntaxError,
    UpdateFile,
    parse,
)
from foldlog.adapters.builtin.patch_matching import Lines, PatchMismatch, updated
from foldlog.adapters.builtin.patching import PatchFailed, apply, check
from foldlog.adapters.builtin.workspace import Workspace
from foldlog.runtime import ToolFailed
from hypothesis import given
from hypothesis import strategies as st

HEADERS = "Valid hunk headers: '*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'"
SIGNS = "Every line should start with ' ' (context line), '+' (added line), or '-' (removed line)"
FIRST = "The first line of the patch must be '*** Begin Patch'"
LAST = "The last line of the patch must be '*** End Patch'"


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def update(*lines: str, path: str = "f") -> str:
    return patch(f"*** Update File: {path}", *lines)


def chunk(*lines: str, contexts: tuple[str, ...] = (), at_end: bool = False) -> Chunk:
    return Chunk(contexts, tuple(Line(line[0], line[1:]) for line in lines), at_end)  # type: ignore[arg-type]


# --- reading ----------------------------------------------------------------------------------------------------------

READ: dict[str, tuple[str, tuple[Change, ...]]] = {
    "nothing": (patch(), ()),
    "an added file": (patch("*** Add File: a", "+one", "+two"), (AddFile("a", "one\ntwo\n"),)),
    "an added file without lines is empty": (patch("*** Add File: a"), (AddFile("a", ""),)),
    "an added empty line": (patch("*** Add File: a", "+", "+x"), (AddFile("a", "\nx\n"),)),
    "an added line that looks like a marker": (
        patch("*** Add File: a", "+*** End Patch", "++x"),
        (AddFile("a", "*** End Patch\n+x\n"),),
    ),
    "a deleted file": (patch("*** Delete File: a/b c.txt"), (DeleteFile("a/b c.txt"),)),
    "an update": (update("@@", " a", "-b", "+c"), (UpdateFile("f", (chunk(" a", "-b", "+c"),)),)),
    "an update without @@": (update(" a", "+b"), (UpdateFile("f", (chunk(" a", "+b"),)),)),
    "an update with a context": (
        update("@@ def f():", "-a", "+b"),
        (UpdateFile("f", (chunk("-a", "+b", contexts=("def f():",)),)),),
    ),
    "nested contexts": (
        update("@@ class A", "@@   def f():", "-a", "+b"),
        (UpdateFile("f", (chunk("-a", "+b", contexts=("class A", "  def f():")),)),),
    ),
    "a context behind a bare @@": (
        update("@@", "@@ class A", "-a"),
        (UpdateFile("f", (chunk("-a", contexts=("class A",)),)),),
    ),
    "several chunks": (
        update("@@", "-a", "@@ x", "+b", "@@", " c"),
        (UpdateFile("f", (chunk("-a"), chunk("+b", contexts=("x",)), chunk(" c"))),),
    ),
    "@@ with a blank behind it is bare": (update("@@ ", "-a"), (UpdateFile("f", (chunk("-a"),)),)),
    "a context keeps its indentation and loses blanks at its end": (
        update("@@    def f():  ", "-a"),
        (UpdateFile("f", (chunk("-a", contexts=("   def f():",)),)),),
    ),
    "the end of the file": (
        update("@@", " a", "+b", "*** End of File"),
        (UpdateFile("f", (chunk(" a", "+b", at_end=True),)),),
    ),
    "an empty line behind the end of the file is nothing": (
        update("@@", "+b", "*** End of File", "", "   "),
        (UpdateFile("f", (chunk("+b", at_end=True),)),),
    ),
    "a chunk behind the end of the file": (
        update("+b", "*** End of File", "@@ x", "+c"),
        (UpdateFile("f", (chunk("+b", at_end=True), chunk("+c", contexts=("x",)))),),
    ),
    "the end of the file before any chunk is nothing": (
        update("*** End of File", "+b"),
        (UpdateFile("f", (chunk("+b"),)),),
    ),
    "an empty line is empty context": (
        update("@@", " a", "", " b"),
        (UpdateFile("f", (chunk(" a", " ", " b"),)),),
    ),
    "an empty line may begin an update": (update("", "+b"), (UpdateFile("f", (chunk(" ", "+b"),)),)),
    "a move": (
        update("*** Move to: g/h", "@@", "-a", "+b"),
        (UpdateFile("f", (chunk("-a", "+b"),), "g/h"),),
    ),
    "several files": (
        patch("*** Add File: a", "+x", "*** Delete File: b", "*** Update File: c", "+y", "*** Add File: d"),
        (AddFile("a", "x\n"), DeleteFile("b"), UpdateFile("c", (chunk("+y"),)), AddFile("d", "")),
    ),
    "an indented marker in an update is context": (
        update("@@", "-a", " *** Update File: g", "@@", "-b"),
        (UpdateFile("f", (chunk("-a", " *** Update File: g"), chunk("-b"))),),
    ),
    "an indented end marker in an update is context": (
        update("@@", "-a", " *** End Patch"),
        (UpdateFile("f", (chunk("-a", " *** End Patch"),)),),
    ),
    "blanks around the patch": (f"\n\n  {patch('*** Delete File: a')}\t\n\n", (DeleteFile("a"),)),
    "blanks around the outer markers": (
        "  *** Begin Patch \n*** Delete File: a\n\t*** End Patch  ",
        (DeleteFile("a"),),
    ),
    "blanks around the headers": (
        patch("   *** Add File: a  ", "+x", "  *** Delete File: b"),
        (AddFile("a", "x\n"), DeleteFile("b")),
    ),
    "blanks behind the markers of an update": (
        update("*** Move to: g  ", "@@  ", "-a", "*** End of File  ", path="f "),
        (UpdateFile("f", (chunk("-a", at_end=True),), "g"),),
    ),
    "blanks before the last marker of an update": (
        "*** Begin Patch\n*** Update File: f\n+a\n   *** End Patch",
        (UpdateFile("f", (chunk("+a"),)),),
    ),
    "CR LF": (
        update("@@ x", " a", "", "-b", "+c", "*** End of File").replace("\n", "\r\n"),
        (UpdateFile("f", (chunk(" a", " ", "-b", "+c", contexts=("x",), at_end=True),)),),
    ),
    "CR LF in an added file": (
        patch("*** Add File: a", "+x", "+").replace("\n", "\r\n") + "\r\n",
        (AddFile("a", "x\n\n"),),
    ),
    "a CR within a line stays": (patch("*** Add File: a", "+x\ry"), (AddFile("a", "x\ry\n"),)),
    "other line separators do not end a line": (
        patch("*** Add File: a", "+x\x0by\x85z\u2028"),
        (AddFile("a", "x\x0by\x85z\u2028\n"),),
    ),
    "a here-document": (f"<<EOF\n{patch('*** Delete File: a')}\nEOF\n", (DeleteFile("a"),)),
    "a here-document in single quotes": (
        f"<<'EOF'\n{patch('*** Delete File: a')}\nEOF",
        (DeleteFile("a"),),
    ),
    "a here-document in double quotes": (
        f'<<"EOF"\n{patch("*** Delete File: a")}\nEOF\n\n',
        (DeleteFile("a"),),
    ),
    "a here-document around nothing": (f"<<EOF\n{patch()}\nEOF", ()),
    "an environment": (patch("*** Environment ID: remote", "*** Delete File: a"), (DeleteFile("a"),)),
    "a second end marker": (f"{patch('*** Delete File: a')}\n*** End Patch", (DeleteFile("a"),)),
    "the text of a path is not looked at": (patch("*** Delete File: ../a\0b"), (DeleteFile("../a\0b"),)),
    "signs are read once": (update("++a", "--b", "  c"), (UpdateFile("f", (chunk("++a", "--b", "  c"),)),)),
}


@pytest.mark.parametrize(("text", "changes"), READ.values(), ids=READ)
def test_a_patch_is_read(text: str, changes: tuple[Change, ...]) -> None:
    assert parse(text) == changes


REFUSED: dict[str, tuple[str, int | None, str]] = {
    "no text": ("", None, LAST),
    "blanks": (" \n\t\n", None, LAST),
    "something else": ("bad", None, FIRST),
    "no end": ("*** Begin Patch\nbad", None, LAST),
    "only a beginning": ("*** Begin Patch", None, LAST),
    "only an end": ("*** End Patch", None, FIRST),
    "markers in lower case": ("*** begin patch\n*** end patch", None, FIRST),
    "text before": (f"Here:\n{patch()}", None, FIRST),
    "text behind": (f"{patch()}\nDone.", None, LAST),
    "text between two ends": (f"{patch()}\nmore\n*** End Patch", None, LAST),
    "a file behind the end": (f"{patch('*** Delete File: a')}\n{patch('*** Delete File: b')}", None, LAST),
    "quotes that differ": (f"<<\"EOF'\n{patch()}\nEOF", None, FIRST),
    "another delimiter": (f"<<PATCH\n{patch()}\nPATCH", None, FIRST),
    "a here-document without its end": (f"<<EOF\n{patch()}", None, FIRST),
    "a here-document around half a patch": (
        "<<EOF\n*** Begin Patch\n*** Update File: f\nEOF",
        None,
        LAST,
    ),
    "a here-document that is too short": ("<<EOF\n*** Begin Patch\nEOF", None, FIRST),
    "two environments": (
        patch("*** Environment ID: a", "*** Environment ID: a", "*** Delete File: a"),
        None,
        "apply_patch environment_id cannot be specified more than once",
    ),
    "an environment without a name": (
        patch("*** Environment ID:   "),
        None,
        "apply_patch environment_id cannot be empty",
    ),
    "an unknown header": (
        patch("*** Frobnicate File: foo"),
        2,
        f"'*** Frobnicate File: foo' is not a valid hunk header. {HEADERS}",
    ),
    "a line before any header": (patch("  bad "), 2, f"'bad' is not a valid hunk header. {HEADERS}"),
    "an empty line before any header": (
        patch("", "*** Delete File: a"),
        2,
        f"'' is not a valid hunk header. {HEADERS}",
    ),
    "a header without a path": (
        patch("*** Add File: "),
        2,
        f"'*** Add File:' is not a valid hunk header. {HEADERS}",
    ),
    "a line without + in an added file": (
        patch("*** Add File: a", "+x", "y"),
        4,
        f"'y' is not a valid hunk header. {HEADERS}",
    ),
    "an empty line in an added file": (
        patch("*** Add File: a", "+x", "", "+y"),
        4,
        f"'' is not a valid hunk header. {HEADERS}",
    ),
    "a move of an added file": (
        patch("*** Add File: a", "*** Move to: b"),
        3,
        f"'*** Move to: b' is not a valid hunk header. {HEADERS}",
    ),
    "a line behind a deleted file": (
        patch("*** Delete File: a", "-x"),
        3,
        f"'-x' is not a valid hunk header. {HEADERS}",
    ),
    "an environment behind a file": (
        patch("*** Delete File: a", "*** Environment ID: x"),
        3,
        f"'*** Environment ID: x' is not a valid hunk header. {HEADERS}",
    ),
    "an update without lines": (update(), 2, "Update file hunk for path 'f' is empty"),
    "an update that only moves": (
        update("*** Move to: g", "*** Delete File: a"),
        2,
        "Update file hunk for path 'f' is empty",
    ),
    "an update with the end of the file alone": (
        update("*** End of File"),
        2,
        "Update file hunk for path 'f' is empty",
    ),
    "a chunk without lines at the end": (update("@@"), 4, "Update hunk does not contain any lines"),
    "a context without lines at the end": (
        update("-a", "@@ x", "@@ y"),
        6,
        "Update hunk does not contain any lines",
    ),
    "a chunk without lines before another file": (
        update("@@", "*** Update File: g"),
        4,
        f"Unexpected line found in update hunk: '*** Update File: g'. {SIGNS}",
    ),
    "a chunk without lines before a chunk": (
        update("@@", "@@"),
        4,
        f"Unexpected line found in update hunk: '@@'. {SIGNS}",
    ),
    "a bare @@ behind a context": (
        update("@@ x", "@@"),
        4,
        f"Unexpected line found in update hunk: '@@'. {SIGNS}",
    ),
    "the end of the file in a chunk without lines": (
        update("@@", "*** End of File"),
        4,
        "Update hunk does not contain any lines",
    ),
    "a line without a sign at the beginning of an update": (
        update("bad"),
        3,
        f"Unexpected line found in update hunk: 'bad'. {SIGNS}",
    ),
    "a line without a sign at the beginning of a chunk": (
        update("@@", "bad"),
        4,
        f"Unexpected line found in update hunk: 'bad'. {SIGNS}",
    ),
    "a line without a sign in a chunk": (
        update("@@", "-old", "bad"),
        5,
        "Expected update hunk to start with a @@ context marker, got: 'bad'",
    ),
    "a line behind the end of the file": (
        update("-old", "*** End of File", "+new"),
        5,
        "Expected update hunk to start with a @@ context marker, got: '+new'",
    ),
    "@@ without a blank": (update("@@x", "-a"), 3, f"Unexpected line found in update hunk: '@@x'. {SIGNS}"),
    "a second move": (
        update("*** Move to: g", "*** Move to: h", "-a"),
        4,
        f"Unexpected line found in update hunk: '*** Move to: h'. {SIGNS}",
    ),
    "a move behind a chunk": (
        update("-a", "*** Move to: g"),
        4,
        "Expected update hunk to start with a @@ context marker, got: '*** Move to: g'",
    ),
    "line numbers of a here-document begin at the patch": (
        f"<<EOF\n{patch('bad')}\nEOF",
        2,
        f"'bad' is not a valid hunk header. {HEADERS}",
    ),
    "line numbers begin at the first line with text": (
        f"\n\n{patch('bad')}",
        2,
        f"'bad' is not a valid hunk header. {HEADERS}",
    ),
}


@pytest.mark.parametrize(("text", "line", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_a_patch_is_refused_with_the_line_and_the_problem(
    text: str, line: int | None, problem: str
) -> None:
    with pytest.raises(PatchSyntaxError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.problem) == (line, problem)
    if line is None:
        assert str(caught.value) == f"invalid patch: {problem}"
        assert caught.value.terminal_message == f"Invalid patch: {problem}"
    else:
        assert str(caught.value) == f"invalid hunk at line {line}, {problem}"
        assert caught.value.terminal_message == f"Invalid patch hunk on line {line}: {problem}"


# --- finding ----------------------------------------------------------------------------------------------------------

SOUGHT: dict[str, tuple[list[str], list[str], int, int | None]] = {
    "exactly": (["foo", "bar", "baz"], ["bar", "baz"], 0, 1),
    "the first of two": (["x", "a", "x"], ["x"], 0, 0),
    "not before the start": (["x", "a", "x"], ["x"], 1, 2),
    "without blanks at the end": (["foo   ", "bar\t\t"], ["foo", "bar"], 0, 0),
    "without blanks around": (["    foo   ", "   bar\t"], ["foo", "bar"], 0, 0),
    "blanks of the patch": (["foo"], ["  foo  "], 0, 0),
    "an exact place behind a lenient one": ([" x", "x"], ["x"], 0, 1),
    "blanks at the end before blanks around": ([" x", "x  "], ["x"], 0, 1),
    "blanks within a line count": (["a  b"], ["a b"], 0, None),
    "no-break spaces are white space": (["\u00a0x\u2003"], ["x"], 0, 0),
    "dashes": (["a \u2010\u2011\u2012\u2013\u2014\u2015\u2212 b"], ["a ------- b"], 0, 0),
    "quotes": (["\u2018\u2019\u201a\u201b \u201c\u201d\u201e\u201f"], ["'''' \"\"\"\""], 0, 0),
    "spaces within a line": (["a\u00a0b\u202fc\u3000d"], ["a b c d"], 0, 0),
    "typography in the patch": (["a - b"], ["a \u2013 b"], 0, 0),
    "an ellipsis is not three dots": (["a\u2026"], ["a..."], 0, None),
    "letters are not folded": (["Foo"], ["foo"], 0, None),
    "nothing wanted": (["a"], [], 1, 1),
    "more wanted than there is": (["just one line"], ["too", "many", "lines"], 0, None),
    "in an empty file": ([], ["a"], 0, None),
    "a separator is not white space": (["x\x1f"], ["x"], 0, None),
}


@pytest.mark.parametrize(("lines", "wanted", "start", "at"), SOUGHT.values(), ids=SOUGHT)
def test_lines_are_found_in_four_passes(
    lines: list[str], wanted: list[str], start: int, at: int | None
) -> None:
    assert Lines(lines).seek(wanted, start) == at


def test_many_chunks_of_a_long_file_cost_one_look_at_each_line() -> None:
    looks = Counter[str]()

    class Line(str):
        __slots__ = ()

        def strip(self, characters: str | None = None) -> str:
            looks[str(self)] += 1
            return super().strip(characters)

    lines = Lines([Line(f"\t{number}") for number in range(1000)])
    assert [lines.seek([f" {number}"], 0) for number in range(999, -1, -1)] == list(range(999, -1, -1))
    assert set(looks.values()) == {1}


UPDATED: dict[str, tuple[str, str, str]] = {
    "a line replaced": ("foo\nbar\n", update("@@", " foo", "-bar", "+baz"), "foo\nbaz\n"),
    "several chunks": (
        "1\n2\n3\n4\n",
        update("@@", "-2", "+two", "@@", "-4", "+four"),
        "1\ntwo\n3\nfour\n",
    ),
    "interleaved": (
        "a\nb\nc\nd\ne\nf\n",
        update("@@", " a", "-b", "+B", "@@", " c", " d", "-e", "+E", "@@", " f", "+g", "*** End of File"),
        "a\nB\nc\nd\nE\nf\ng\n",
    ),
    "lines deleted": ("1\n2\n3\n", update("@@", " 1", "-2", " 3"), "1\n3\n"),
    "all lines deleted": ("1\n2\n", update("-1", "-2"), ""),
    "an insertion between": ("1\n2\n", update(" 1", "+x", " 2"), "1\nx\n2\n"),
    "an insertion before": ("1\n", update("+x", " 1"), "x\n1\n"),
    "an addition without old lines is appended": ("1\n2\n", update("@@", "+x", "+y"), "1\n2\nx\ny\n"),
    "an addition under a context is appended, too": (
        "f\n  1\ng\n  2\n",
        update("@@ f", "+x"),
        "f\n  1\ng\n  2\nx\n",
    ),
    "an addition before a replacement": (
        "1\n2\n3\n",
        update("@@", "+x", "+y", "@@", " 1", "-2", "-3", "+z"),
        "1\nz\nx\ny\n",
    ),
    "an addition to an empty file": ("", update("+x"), "x\n"),
    "the second of two by its context": (
        "def a\n  pass\ndef b\n  pass\n",
        update("@@ def b", "-  pass", "+  return"),
        "def a\n  pass\ndef b\n  return\n",
    ),
    "the second of two by nested contexts": (
        "class A\n def f\n  pass\nclass B\n def e\n  pass\n def f\n  pass\n",
        update("@@ class B", "@@  def f", "-  pass", "+  return"),
        "class A\n def f\n  pass\nclass B\n def e\n  pass\n def f\n  return\n",
    ),
    "a line behind a context that equals it": ("x\nx\n", update("@@ x", "-x", "+y"), "x\ny\n"),
    "a context is looked for in four passes": (
        "def a:  \n  x\n",
        update("@@   def a:", "-x", "+y"),
        "def a:  \ny\n",
    ),
    "chunks go forward": ("x\na\nx\nb\n", update("@@", "-x", "+1", "@@", "-x", "+2"), "1\na\n2\nb\n"),
    "context is kept as the file has it": (
        "  a\u2013b  \nold\n",
        update(" a-b", "-old", "+new"),
        "  a\u2013b  \nnew\n",
    ),
    "typography replaced": (
        "import x  # local \u2013 avoids top\u2011level\n",
        update("-import x  # local - avoids top-level", "+import x  # new"),
        "import x  # new\n",
    ),
    "other letters": (
        "line1\nnaïve café\n",
        update(" line1", "-naïve café", "+naïve café ✅"),
        "line1\nnaïve café ✅\n",
    ),
    "a missing line ending is added": ("no newline", update("-no newline", "+1", "+2"), "1\n2\n"),
    "a missing line ending is added where nothing changed": ("1\n2", update("-1", "+x"), "x\n2\n"),
    "the end of the file": (
        "x\na\nx\n",
        update("@@", "-x", "+last", "*** End of File"),
        "x\na\nlast\n",
    ),
    "the end of the file in a lenient pass": (
        "x\na\n  x  \n",
        update("-x", "+last", "*** End of File"),
        "x\na\nlast\n",
    ),
    "an empty old line at the end stands for the line ending": (
        "a\nb\n",
        update(" a", "-b", "+c", ""),
        "a\nc\n",
    ),
    "so it does at the end of the file": ("a\nb\n", update(" b", "+c", " ", "*** End of File"), "a\nb\nc\n"),
    "a removed one": ("a\nb\n", update(" a", "-b", "-", "+c"), "a\nc\n"),
    "an added line behind it": ("a\n", update(" a", "", "+c"), "a\n\nc\n"),
    "an added empty line before it": ("a\n", update(" a", "+", ""), "a\n\n"),
    "a removed line before it": ("a\n", update("-a", ""), ""),
    "a removed and an added one": ("a\n", update("-a", "-", "+b", "+"), "b\n"),
    "an empty line that exists is one": ("a\n\nb\n", update(" a", "", "-b", "+c"), "a\n\nc\n"),
    "an empty file of one empty line": ("\n", update("-", "+x"), "x\n"),
    "the order of repeated lines": ("a\nb\n", update("-a", "-b", "+b", "+b", "+a"), "b\nb\na\n"),
    "CR LF": (
        "one\r\ntwo\r\nthree\r\n",
        update("@@", "-one", "+uno", "@@", " two", "+", "+between", " three"),
        "uno\r\ntwo\r\n\r\nbetween\r\nthree\r\n",
    ),
    "CR LF at a new end": ("one\r\ntwo", update("-one", "+ONE"), "ONE\r\ntwo\r\n"),
    "CR LF appended": ("one\r\n", update("+two"), "one\r\ntwo\r\n"),
    "mixed line endings keep theirs": (
        "one\r\ntwo\nthree\r\nfour\n",
        update(" one", " two", "-three", "+THREE", " four"),
        "one\r\ntwo\nTHREE\r\nfour\n",
    ),
    "a repeated line keeps the ending of the one that stays": (
        "same\r\nsame\n",
        update("-same", " same"),
        "same\n",
    ),
    "CR": ("a\rb\r", update("-b", "+c", "+d"), "a\rc\rd\r"),
    "CR and others": ("a\rb\nc\r\r\n", update("@@", "-b", "+B", "@@", "-", "+d"), "a\rB\rc\rd\r"),
    "a chunk behind one of empty context at the end of the file": (
        "1\n2\n",
        update("@@", "", "*** End of File", "@@", " 1", "+x"),
        "1\nx\n2\n",
    ),
    "an addition at the end of the file with empty context": (
        "1\n2\n",
        update("+x", "", "*** End of File"),
        "1\n2\nx\n",
    ),
    "other separators do not end a line": ("a\x0cb\u2028c\nd\n", update("-d", "+e"), "a\x0cb\u2028c\ne\n"),
    "a byte order mark stays": ("\ufeffa\nb\n", update("-b", "+c"), "\ufeffa\nc\n"),
}


@pytest.mark.parametrize(("before", "text", "after"), UPDATED.values(), ids=UPDATED)
def test_a_file_is_updated(before: str, text: str, after: str) -> None:
    (change,) = parse(text)
    assert isinstance(change, UpdateFile)
    assert updated(before, change.chunks, "f") == after


MISSED: dict[str, tuple[str, str, str]] = {
    "lines that are not there": (
        "1\n2\n",
        update("-missing", "+x"),
        "Failed to find expected lines in /f:\nmissing",
    ),
    "all wanted lines are told": (
        "1\n",
        update(" a", "-b", "", "+c"),
        "Failed to find expected lines in /f:\na\nb\n",
    ),
    "a context that is not there": ("1\n", update("@@ def f", "-1"), "Failed to find context 'def f' in /f"),
    "a nested context that is not there": (
        "class A\n",
        update("@@ class A", "@@ def f", "-1"),
        "Failed to find context 'def f' in /f",
    ),
    "nested contexts in the wrong order": (
        "def f\nclass A\n1\n",
        update("@@ class A", "@@ def f", "-1"),
        "Failed to find context 'def f' in /f",
    ),
    "lines before their context": ("1\nf\n", update("@@ f", "-1"), "Failed to find expected lines in /f:\n1"),
    "chunks in the wrong order": (
        "1\n2\n",
        update("@@", "-2", "+b", "@@", "-1", "+a"),
        "Failed to find expected lines in /f:\n1",
    ),
    "lines that are not at the end": (
        "1\n2\n",
        update("-1", "+x", "*** End of File"),
        "Failed to find expected lines in /f:\n1",
    ),
    "the end of the file taken twice": (
        "1\n",
        update("@@", "-1", "+x", "@@", "-1", "+y", "*** End of File"),
        "Failed to find expected lines in /f:\n1",
    ),
    "the end of the file with lines that were context before": (
        "a\nb\nc\nd\n",
        update("@@", " a", "-b", "+B", " c", "@@", " c", "-d", "+D", "*** End of File"),
        "Failed to find expected lines in /f:\nc\nd",
    ),
    "the end of the file with its own context line": (
        "f\ng\n",
        update("@@ f", " f", "-g", "+h", "*** End of File"),
        "Failed to find expected lines in /f:\nf\ng",
    ),
    "the end of the file around what is inserted": (
        "1\n2\n",
        update("@@", " 1", "+x", "@@", "-1", "-2", "*** End of File"),
        "Failed to find expected lines in /f:\n1\n2",
    ),
    "an empty file": ("", update("-1"), "Failed to find expected lines in /f:\n1"),
}


@pytest.mark.parametrize(("before", "text", "message"), MISSED.values(), ids=MISSED)
def test_what_is_not_found_is_told(before: str, text: str, message: str) -> None:
    (change,) = parse(text)
    assert isinstance(change, UpdateFile)
    with pytest.raises(PatchMismatch) as caught:
        updated(before, change.chunks, "/f")
    assert str(caught.value) == message


LINE = st.text("ab \t\u2013-", max_size=4)
ENDING = st.sampled_from(["\n", "\r\n"])


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, str, str]:
    """A file, a patch that keeps, removes and adds lines of it at random, and the file behind it."""
    ending = draw(ENDING)
    ops = draw(st.lists(st.tuples(st.sampled_from([" ", "-", "+"]), LINE), min_size=1, max_size=12))
    before = "".join(f"{text}{ending}" for sign, text in ops if sign != "+")
    after = "".join(f"{text}{ending if before else chr(10)}" for sign, text in ops if sign != "-")
    return before, update("@@", *(f"{sign}{text}" for sign, text in ops)), after


@given(edits())
def test_whatever_edit_of_a_whole_file_is_written_as_a_patch_gives_the_edited_file(
    edit: tuple[str, str, str],
) -> None:
    before, text, after = edit
    (change,) = parse(text)
    assert isinstance(change, UpdateFile)
    assert updated(before, change.chunks, "f") == after


@st.composite
def scattered_edits(draw: st.DrawFn) -> tuple[str, str, str]:
    """A file of distinct lines, and a patch of several chunks, each with its lines of context, for random edits."""
    count = draw(st.integers(1, 30))
    lines = [f"line {n}" for n in range(count)]
    removed = draw(st.sets(st.integers(0, count - 1), max_size=count))
    inserted = draw(
        st.dictionaries(st.integers(0, count - 1), st.lists(LINE, min_size=1, max_size=3), max_size=6)
    )
    touched = sorted(removed | set(inserted))
    width = draw(st.integers(0, 3))
    patched, after, done = list[str](), list[str](), 0
    for n, line in enumerate(lines):
        kept = n not in removed
        near = any(abs(n - each) <= width for each in touched)
        if near:
            if n == 0 or n > done:
                patched.append("@@")
            patched += [f"+{text}" for text in inserted.get(n, [])]
            patched.append(f" {line}" if kept else f"-{line}")
            done = n + 1
        after += inserted.get(n, [])
        after += [line] if kept else []
    body = [*patched] or ["@@", " line 0"]
    return "".join(f"{x}\n" for x in lines), update(*body), "".join(f"{x}\n" for x in after)


@given(scattered_edits())
def test_edits_in_several_places_of_a_file_give_the_edited_file(edit: tuple[str, str, str]) -> None:
    before, text, after = edit
    (change,) = parse(text)
    assert isinstance(change, UpdateFile)
    assert updated(before, change.chunks, "f") == after


PARTS = [
    "*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Delete File: b", "*** Update File: c", "*** Move to: d",
    "*** End of File", "@@", "@@ x", "+a", "-a", " a", "", "<<EOF", "EOF",
]  # fmt: skip


@given(st.lists(LINE | st.sampled_from(PARTS), max_size=12))
def test_any_text_is_a_patch_or_refused_with_a_message(lines: list[str]) -> None:
    text = patch(*lines)
    with contextlib.suppress(PatchSyntaxError):
        assert all(change.path for change in parse(text))
    with pytest.raises(PatchSyntaxError, match="invalid patch: The first line"):
        parse(f"?{text}")


# --- in a workspace ---------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """Files before, a patch, files behind it; `summary` of a success or `error` of a failure, `{root}` in it."""

    before: Mapping[str, str]
    patch: str
    after: Mapping[str, str]
    summary: str = ""
    error: str = ""


OLD_NEW = ("@@", "-old", "+new")
CASES: dict[str, Case] = {
    "a file added": Case({}, patch("*** Add File: bar.md", "+new"), {"bar.md": "new\n"}, "A bar.md"),
    "all three, told by kind": Case(
        {"modify.txt": "1\nold\n", "delete.txt": "x\n"},
        patch(
            "*** Delete File: delete.txt",
            "*** Update File: modify.txt",
            *OLD_NEW,
            "*** Add File: nested/new.txt",
            "+created",
        ),
        {"modify.txt": "1\nnew\n", "nested/new.txt": "created\n"},
        "A nested/new.txt\nM modify.txt\nD delete.txt",
    ),
    "a file moved to a new directory": Case(
        {"old/name.txt": "old\n", "old/other.txt": "x\n"},
        patch("*** Update File: old/name.txt", "*** Move to: renamed/dir/name.txt", *OLD_NEW),
        {"old/other.txt": "x\n", "renamed/dir/name.txt": "new\n"},
        "M renamed/dir/name.txt",
    ),
    "a move replaces what is there": Case(
        {"a": "old\n", "b": "existing\n"},
        patch("*** Update File: a", "*** Move to: b", *OLD_NEW),
        {"b": "new\n"},
        "M b",
    ),
    "a move to itself keeps the file": Case(
        {"d/a": "old\n"},
        patch("*** Update File: d/a", "*** Move to: d/../d/a", *OLD_NEW),
        {"d/a": "new\n"},
        "M d/../d/a",
    ),
    "an added file replaces what is there": Case(
        {"a": "old\n"}, patch("*** Add File: a", "+new"), {"a": "new\n"}, "A a"
    ),
    "paths are told as they are written": Case(
        {"a": "old\n"}, patch("*** Update File: ./a", *OLD_NEW), {"a": "new\n"}, "M ./a"
    ),
    "an absolute path": Case({}, patch("*** Add File: {root}/a", "+x"), {"a": "x\n"}, "A {root}/a"),
    "a path with blanks": Case({"a b": "x"}, patch("*** Delete File: a b"), {}, "D a b"),
    "one file twice": Case(
        {"a": "old\n"},
        patch("*** Update File: a", *OLD_NEW, "*** Update File: a", "+more"),
        {"a": "new\nmore\n"},
        "M a\nM a",
    ),
    "nothing": Case({"a": "x"}, patch(), {"a": "x"}, error="No files were modified."),
    "an update of a file that is not there": Case(
        {},
        patch("*** Update File: missing.txt", *OLD_NEW),
        {},
        error="Failed to read file to update {root}/missing.txt: No such file or directory (os error 2)",
    ),
    "an update of a directory": Case(
        {"d/a": "x"},
        patch("*** Update File: d", *OLD_NEW),
        {"d/a": "x"},
        error="Failed to read file to update {root}/d: path `{root}/d` is not a file",
    ),
    "lines that are not there": Case(
        {"a": "1\n"},
        patch("*** Update File: ./a", "@@", "-missing", "+x"),
        {"a": "1\n"},
        error="Failed to find expected lines in {root}/a:\nmissing",
    ),
    "a context that is not there": Case(
        {"a": "1\n"},
        patch("*** Update File: a", "@@ f()", "-1"),
        {"a": "1\n"},
        error="Failed to find context 'f()' in {root}/a",
    ),
    "a deletion of a file that is not there": Case(
        {"a": "x"}, patch("*** Delete File: b"), {"a": "x"}, error="Failed to delete file {root}/b"
    ),
    "a deletion of a directory": Case(
        {"d/a": "x"}, patch("*** Delete File: d"), {"d/a": "x"}, error="Failed to delete file {root}/d"
    ),
    "a file added where a directory is": Case(
        {"d/a": "x"}, patch("*** Add File: d", "+x"), {"d/a": "x"}, error="Failed to write file {root}/d"
    ),
    "a file added below a file": Case(
        {"a": "x"}, patch("*** Add File: a/b", "+x"), {"a": "x"}, error="Failed to write file {root}/a/b"
    ),
    "a name that is too long for a directory": Case(
        {},
        patch(f"*** Add File: d/{'x' * 300}/a", "+x"),
        {},
        error="Failed to create parent directories for {root}/d/" + "x" * 300 + "/a",
    ),
    "what was done before a failure stays": Case(
        {},
        patch("*** Add File: created.txt", "+hello", "*** Update File: missing.txt", *OLD_NEW),
        {"created.txt": "hello\n"},
        error="Failed to read file to update {root}/missing.txt: No such file or directory (os error 2)",
    ),
    "a path that leads out": Case(
        {}, patch("*** Add File: ../a", "+x"), {}, error="../a: is outside the workspace"
    ),
    "an absolute path elsewhere": Case(
        {}, patch("*** Delete File: /etc/passwd"), {}, error="/etc/passwd: is outside the workspace"
    ),
    "a move that leads out keeps the file": Case(
        {"a": "old\n"},
        patch("*** Update File: a", "*** Move to: ../b", *OLD_NEW),
        {"a": "old\n"},
        error="../b: is outside the workspace",
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    place.mkdir()
    return place


def write_files(root: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content.encode())


def files_of(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes().decode()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_patch_is_carried_out_in_a_workspace(root: Path, case: Case) -> None:
    write_files(root, case.before)
    changes = parse(case.patch.replace("{root}", str(root)))
    if case.error:
        with pytest.raises(ToolFailed) as caught:
            apply(Workspace(root), changes)
        assert str(caught.value) == case.error.replace("{root}", str(root))
    else:
        told = str(apply(Workspace(root), changes))
        summary = case.summary.replace("{root}", str(root))
        assert told == f"Success. Updated the following files:\n{summary}"
    assert files_of(root) == case.after


def test_a_file_that_is_not_text_is_not_updated_and_can_be_deleted(root: Path) -> None:
    (root / "a").write_bytes(b"\xff\xfe")
    with pytest.raises(PatchFailed) as caught:
        apply(Workspace(root), parse(patch("*** Update File: a", *OLD_NEW)))
    assert str(caught.value) == f"Failed to read file to update {root}/a: stream did not contain valid UTF-8"
    apply(Workspace(root), parse(patch("*** Delete File: a")))
    assert files_of(root) == {}


def test_a_move_onto_a_link_to_the_file_itself_keeps_the_file(root: Path) -> None:
    write_files(root, {"a": "old\n"})
    (root / "b").symlink_to("a")
    apply(Workspace(root), parse(patch("*** Update File: a", "*** Move to: b", *OLD_NEW)))
    assert files_of(root) == {"a": "new\n", "b": "new\n"}


def test_a_deleted_link_leaves_its_target(root: Path) -> None:
    write_files(root, {"a": "x\n"})
    (root / "b").symlink_to("a")
    apply(Workspace(root), parse(patch("*** Delete File: b")))
    assert files_of(root) == {"a": "x\n"}


def test_a_directory_that_cannot_be_made_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(PatchFailed) as caught:
        apply(Workspace(root), parse(patch("*** Add File: d/a", "+x")))
    assert str(caught.value) == f"Failed to create parent directories for {root}/d/a"


def test_an_original_that_cannot_be_removed_stays_beside_the_moved_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied")

    write_files(root, {"a": "old\n"})
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PatchFailed) as caught:
        apply(Workspace(root), parse(patch("*** Update File: a", "*** Move to: b", *OLD_NEW)))
    assert str(caught.value) == f"Failed to remove original {root}/a"
    assert files_of(root) == {"a": "old\n", "b": "new\n"}


CHECKED: dict[str, tuple[str, str]] = {
    "a later update that does not fit": (
        patch("*** Add File: new", "+x", "*** Update File: a", "-missing"),
        "Failed to find expected lines in {root}/a:\nmissing",
    ),
    "a later deletion of nothing": (
        patch("*** Add File: new", "+x", "*** Delete File: none"),
        "Failed to read {root}/none: No such file or directory (os error 2)",
    ),
    "a deletion of a file that is not text": (
        patch("*** Delete File: binary"),
        "Failed to read {root}/binary: stream did not contain valid UTF-8",
    ),
    "an update of a file that the patch itself deletes": (
        patch("*** Delete File: a", "*** Update File: a", "-a"),
        "Failed to read file to update {root}/a: No such file or directory (os error 2)",
    ),
    "an added file outside": (
        patch("*** Add File: new", "*** Add File: ../x"),
        "../x: is outside the workspace",
    ),
    "a move outside": (
        patch("*** Update File: a", "*** Move to: ../x", "-a"),
        "../x: is outside the workspace",
    ),
    "an update outside": (
        patch("*** Update File: /etc/passwd", "-a"),
        "/etc/passwd: is outside the workspace",
    ),
}


@pytest.mark.parametrize(("text", "error"), CHECKED.values(), ids=CHECKED)
def test_a_check_finds_what_would_fail_and_changes_nothing(root: Path, text: str, error: str) -> None:
    write_files(root, {"a": "a\n"})
    (root / "binary").write_bytes(b"\xff")
    with pytest.raises(ToolFailed) as caught:
        check(Workspace(root), parse(text))
    assert str(caught.value) == error.replace("{root}", str(root))
    assert sorted(path.name for path in root.iterdir()) == ["a", "binary"]


def test_a_check_lets_a_patch_through_that_can_be_applied(root: Path) -> None:
    write_files(root, {"a": "old\n", "b": "x\n"})
    changes = parse(
        patch(
            "*** Add File: d/e/new",
            "+x",
            "*** Delete File: b",
            "*** Update File: a",
            "*** Move to: d/a",
            *OLD_NEW,
        )
    )
    check(Workspace(root), changes)
    assert files_of(root) == {"a": "old\n", "b": "x\n"}
    apply(Workspace(root), changes)
    assert files_of(root) == {"d/e/new": "x\n", "d/a": "new\n"}
