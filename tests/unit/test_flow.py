"""The flow language: text to tree and back, and errors that point into the text."""

import msgspec
import pytest
from foldlog.eventlog.errors import AgentConfigError, FlowError
from foldlog.replay.strategies.swarms import flows, predicates
from foldlog.runtime.core.swarm import (
    Arm,
    At,
    Branch,
    Case,
    Contains,
    Flow,
    Is,
    Loop,
    Matches,
    Named,
    Node,
    Parallel,
    Pass,
    Series,
    format_flow,
    holds,
    names_in,
    parse_flow,
)
from foldlog.runtime.core.swarm.flow_parser import LOOP_TIMES_MAX, NESTING_MAX, WORDS
from foldlog.runtime.core.swarm.predicates import Data
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("a", "b", "c", "d", "e")
A, B, C, D, E = map(Node, NAMES)
CYCLE = "'a' already runs before this point: a cycle; to repeat, write a loop: (a >> b)*3"
MORE = "expected '>>', '*' or the end of the flow"
HOW_OFTEN = "expected a count, as in (a >> b)*3, or until and a predicate"
DIALECT = "(the syntax is that of RE2: without look-around and back-references)"
ANY_PREDICATE = 'expected a predicate: "text", contains "text", /regex/, .json.path or a name'
ANY_NAME = "expected a name, '(' or '{'"


def parsed(text: str) -> Flow:
    return parse_flow(text, NAMES)


@pytest.mark.parametrize(
    ("text", "flow"),
    [
        ("a", A),
        ("a >> b", Series((A, B))),
        ("a>>b\n  >> c", Series((A, B, C))),
        ("a >> (b | c) >> d", Series((A, Parallel((B, C)), D))),
        ("(a >> b | c)", Parallel((Series((A, B)), C))),
        ("a*3", Loop(A, 3)),
        ("a * 3 >> b", Series((Loop(A, 3), B))),
        ('(a >> b)*5 until contains "ok" >> c', Series((Loop(Series((A, B)), 5, Contains("ok")), C))),
        ('a*until "done"', Loop(A, 10, Is("done"))),
        ("((a*2 >> b)*3)", Loop(Series((Loop(A, 2), B)), 3)),
        ('a >> {"bug": b, else: c}', Series((A, Branch((Case(Is("bug"), B),), C)))),
        (
            "{/x/: a >> b, urgent: pass, else: (c | d)}*2",
            Loop(
                Branch((Case(Matches("x"), Series((A, B))), Case(Named("urgent"), Pass())), Parallel((C, D))),
                2,
            ),
        ),
    ],
)
def test_a_text_is_read_as_its_tree(text: str, flow: Flow) -> None:
    assert parsed(text) == flow


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("(a)", "a"),
        ("a >> (b >> c)", "a >> b >> c"),
        ("((a | b) | c)", "(a | b | c)"),
        ("(a | (b | c) >> d)", "(a | (b | c) >> d)"),
        ("(a*2)*3", "(a*2)*3"),
        ("a*until x", "a*10 until x"),
        ("{.ok == true: a, else: b}", "{.ok: a, else: b}"),
        (r"{/a\/b/: a, else: pass}", r"{/a\/b/: a, else: pass}"),
    ],
)
def test_parentheses_that_mean_nothing_leave_no_trace(text: str, same: str) -> None:
    assert format_flow(parsed(text)) == same


@given(flows())
def test_a_tree_that_is_written_is_read_as_itself(flow: Flow) -> None:
    text = format_flow(flow)
    assert parse_flow(text, names_in(flow)) == flow
    assert format_flow(parse_flow(text, names_in(flow))) == text


@given(flows())
def test_a_tree_is_data(flow: Flow) -> None:
    assert msgspec.json.decode(msgspec.json.encode(flow), type=Flow) == flow  # type: ignore[arg-type]


@given(st.text(alphabet='ab cd>>||(){}*,:"/\\.[]until else 13\n'))
def test_any_text_is_a_flow_or_an_error_with_a_place_in_it(text: str) -> None:
    try:
        parsed(text)
    except FlowError as failed:
        error = failed
    else:
        return
    lines = text.split("\n")
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1


@pytest.mark.parametrize(
    ("text", "reason", "column"),
    [
        ("", f"{ANY_NAME}, but the flow ends", 1),
        ("a >> ", f"{ANY_NAME}, but the flow ends", 6),
        ("a >> >> b", f"{ANY_NAME}, found '>>'", 6),
        ("a b", f"{MORE}, found 'b'", 3),
        ("a => b", f"{MORE}, found '=>'", 3),
        ("a | b", f"{MORE}, found '|'; a parallel group needs parentheses: (a | b)", 3),
        ("(a | b", "expected '>>', '|', '*' or ')', but the flow ends", 7),
        ("a >> bb", "no agent is named 'bb'; did you mean 'b'?", 6),
        ("a >> zz", "no agent is named 'zz'; known are 'a', 'b', 'c', 'd', 'e'", 6),
        ("a >> b >> a", CYCLE, 11),
        ("a >> (b | c >> a)", CYCLE, 16),
        ("(a | b >> (c | a))", "'a' occurs twice: an agent has one place in a flow", 16),
        ("(a | b) >> {c: d, else: a}", CYCLE, 25),
        ("a >> else", "'else' is a reserved word, not the name of an agent", 6),
        ("a >> pass", "'pass' is a reserved word, not the name of an agent", 6),
        ("a*", f"{HOW_OFTEN}, but the flow ends", 3),
        ("a*x", f"{HOW_OFTEN}, found 'x'", 3),
        ("a*0", "a loop runs 1 to 1000 times, not 0", 3),
        ("a*99999999999999999", "a loop runs 1 to 1000 times, not 99999999999999999", 3),
        ("a*3*2", f"{MORE}, found '*'", 4),
        ("{else: a}", "a branch needs a case before else", 1),
        (
            '{"x": a}',
            "expected '>>', '*' or ',' (a branch ends with else:, which may be pass), found '}'",
            8,
        ),
        (
            '{"x": a, else: b, "y": c}',
            "expected '>>', '*' or '}' (else: is a branch's last case), found ','",
            17,
        ),
        ('{"x" a, else: b}', "expected ':', found 'a'", 6),
        ("{: a}", f"{ANY_PREDICATE}, found ':'", 2),
        ("{not not x: a, else: b}", f"{ANY_PREDICATE}, found 'not'", 6),
        ('{"x: a, else: b}', 'expected text in double quotes, as in "done", found \'"x: a, else: b}\'', 2),
        (
            r'{"\q": a, else: b}',
            "not valid JSON: JSON is malformed: invalid escape character in string (byte 3)",
            2,
        ),
        (
            "{/x: a, else: b}",
            "the regular expression is not closed: write it between slashes, as in /bug|crash/i",
            2,
        ),
        ("{/(/: a, else: b}", f"invalid regular expression: missing ): ( {DIALECT}", 2),
        ("{/a(?=b)/: a, else: b}", f"invalid regular expression: invalid perl operator: (?= {DIALECT}", 2),
        (r"{/(a)\1/: a, else: b}", rf"invalid regular expression: invalid escape sequence: \1 {DIALECT}", 2),
        ("{.x >= : a, else: b}", "expected a string, a number, true, false or null, found ':'", 8),
        ("{. : a, else: b}", "write a path as .key.key[0]; . alone needs a comparison, as in . >= 3", 2),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text: str, reason: str, column: int) -> None:
    with pytest.raises(FlowError) as failed:
        parsed(text)
    assert (failed.value.reason, failed.value.line, failed.value.column) == (reason, 1, column)


def test_an_error_shows_its_line_with_a_caret_below_the_place() -> None:
    with pytest.raises(FlowError) as failed:
        parsed("a >> (b\n\t| c) >>\n\t  x >> d\n>> e")
    assert isinstance(failed.value, AgentConfigError)
    assert str(failed.value) == (
        "flow, line 3, column 4: no agent is named 'x'; known are 'a', 'b', 'c', 'd', 'e'\n"
        "    \t  x >> d\n"
        "    \t  ^"
    )


def test_the_caret_is_below_the_place_after_wide_and_combined_characters() -> None:
    with pytest.raises(FlowError) as failed:
        parsed('{"日本e\u0301": a, else: x}')
    _, line, below = str(failed.value).splitlines()
    assert (failed.value.column, line) == (19, '    {"日本e\u0301": a, else: x}')
    assert below == " " * (4 + 18 + 2 - 1) + "^"


def test_of_a_long_line_what_stands_beside_the_place_is_shown() -> None:
    with pytest.raises(FlowError) as failed:
        parsed(f"a{' ' * 5_000}>> x{' ' * 5_000}>> b")
    _, line, below = str(failed.value).splitlines()
    assert len(line) < 250
    assert (line[below.index("^")], failed.value.column) == ("x", 5_005)


def test_an_unknown_predicate_is_an_error_where_they_are_known() -> None:
    flow = parse_flow("{urgent: a, else: b}", NAMES, ["urgent"])
    assert flow == Branch((Case(Named("urgent"), A),), B)
    with pytest.raises(FlowError, match=r'no predicate is named \'bug\' \(text needs quotes: "bug"\)'):
        parse_flow("{bug: a, else: b}", NAMES, [])


def test_a_flow_is_nested_so_deep_and_no_deeper() -> None:
    assert parsed(f"{'(' * NESTING_MAX}a{')' * NESTING_MAX}") == A
    with pytest.raises(FlowError, match="nested more than 32 deep") as failed:
        parsed("(" * 100_000)
    assert failed.value.column == NESTING_MAX + 1


def test_a_loop_runs_so_often_and_no_more() -> None:
    assert parsed(f"a*{LOOP_TIMES_MAX}") == Loop(A, LOOP_TIMES_MAX)


@pytest.mark.parametrize("word", sorted(WORDS))
def test_no_agent_has_a_word_of_the_language_as_its_name(word: str) -> None:
    with pytest.raises(FlowError, match="is a reserved word"):
        parse_flow(word, [word])


@pytest.mark.parametrize(
    ("predicate", "output", "truth"),
    [
        ('"bug"', " bug\n", True),
        ('"bug"', "Bug", False),
        ('contains "TODO"', "x TODO y", True),
        ('contains "TODO"', "todo", False),
        ("/bug|crash/", "a crash", True),
        ("/bug/", "BUG", False),
        ("/bug/i", "BUG", True),
        ("/über/i", "ÜBER", True),
        (r"/^\pL+$/", "größer", True),
        ("/(?m)^ok$/", "well\nok\n", True),
        ("/x/", "\ud800x", True),
        *(
            (f"/{pattern}/", "a" * 5_000 + "b", False)
            for pattern in ("(a+)+$", "^(a|a)*$", "(.*a){20}$", "^(a|aa)+$")
        ),
        (".ok", '{"ok": true}', True),
        (".ok", '{"ok": 1}', False),
        (".ok", '{"ok": "true"}', False),
        (".ok", "no JSON", False),
        (".ok", "", False),
        (".ok == 1", '{"ok": 1.0}', True),
        (".ok == 1", '{"ok": true}', False),
        (".ok == null", "{}", True),
        (".ok != null", "{}", False),
        ('.a.b[1]["c d"] == "x"', '{"a": {"b": [0, {"c d": "x"}]}}', True),
        (".a[2] == null", '{"a": [0]}', True),
        (".a.b == null", '{"a": "text"}', True),
        (".a[0] == null", '{"a": "text"}', True),
        (".a[0] == null", '{"a": {"0": 1}}', True),
        (".score >= 0.8", '{"score": 0.8}', True),
        (".score > 0.8", '{"score": 0.8}', False),
        (".score < 1", '{"score": 0.8}', True),
        (".score <= -1e3", '{"score": -1000}', True),
        (".score < 1", '{"score": "0"}', False),
        (".score < 1", '{"score": true}', False),
        (".score < 1", "{}", False),
        ('.day >= "2024-05"', '{"day": "2024-06"}', True),
        (". >= 3", "4", True),
        (".[0] == 3", "[3]", True),
    ],
)
def test_a_predicate_says_what_it_says(predicate: str, output: str, truth: bool) -> None:
    flow = parsed(f"a*until {predicate}")
    assert isinstance(flow, Loop)
    assert isinstance(flow.until, Data)
    assert holds(flow.until, output) is truth


JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["a", "ok", ""]), inner),
).map(lambda value: msgspec.json.encode(value).decode())


@given(predicates().filter(lambda predicate: isinstance(predicate, Data)), st.text() | JSON_TEXTS)
def test_every_predicate_that_is_data_holds_of_every_output_or_not(predicate: Data, output: str) -> None:
    assert holds(predicate, output) in {True, False}


def test_the_names_of_a_flow_stand_in_the_order_of_its_text() -> None:
    flow: Arm = parsed("c >> (a | {/x/: e, else: pass}) >> b*2")
    assert names_in(flow) == ("c", "a", "e", "b")
    assert At(("x",)) == At(("x",), "==", value=True)
