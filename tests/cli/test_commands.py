"""Commands as such: help, options, exit codes, formats. Nothing here needs a server."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jsonschema
import pytest
import typer
from foldlog.adapters.cli import app as root
from foldlog.adapters.cli import exits
from foldlog.adapters.cli.output.escaping import clean, exact, exact_lines, json_text, one_line, shown
from foldlog.adapters.cli.settings import Settings
from foldlog.eventlog import (
    AgentConfigError,
    AppendUnsure,
    ApprovalError,
    ConfigError,
    Conflict,
    FoldlogError,
    LogCorrupted,
    LogUnavailable,
    NotRegistered,
    PayloadTooLarge,
    RunCancelled,
    RunConflict,
    RunFailed,
    RunFinished,
    RunNotFound,
    TokenUsage,
    UnsupportedByExecutor,
)
from foldlog.eventlog.events import Text
from hypothesis import given
from rich.cells import cell_len
from typer.testing import CliRunner, Result

from tests.cli.commands import Project

COMMANDS = {
    (): {"run", "worker", "agents", "runs", "approvals", "log", "doctor", "schema", "tools", "demo"},
    ("agents",): {"check"},
    ("runs",): {"list", "show", "stream", "drive", "cancel", "inject", "signal", "pause", "resume"},
    ("approvals",): {"list", "show", "approve", "reject", "token"},
    ("approvals", "token"): {"issue", "revoke"},
    ("log",): {"up", "down", "status"},
    ("schema",): {"json", "config", "swarm", "ralph"},
    ("tools",): {"list", "apply-patch"},
}
HEAVY = {"anyio", "jsonschema", "mcp", "msgspec", "nats", "openai", "rich", "foldlog.runtime"}


def invoke(*args: str) -> Result:
    return CliRunner().invoke(root.app, args)


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", COMMANDS, ids=lambda group: " ".join(group) or "foldlog")
def test_help_names_every_command_and_exits_0(group: tuple[str, ...]) -> None:
    result = invoke(*group, "--help")
    assert result.exit_code == 0
    section = result.stdout.partition("Commands:\n")[2]
    assert {
        line.split()[0] for line in section.splitlines() if line.startswith("  ") and line[2] != " "
    } >= COMMANDS[group]


@pytest.mark.parametrize(
    "command", [(*group, name) for group, names in COMMANDS.items() for name in sorted(names)], ids=" ".join
)
def test_every_command_has_help_of_its_own(command: tuple[str, ...]) -> None:
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")


def test_help_documents_every_exit_code() -> None:
    told = invoke("--help").stdout
    for word in (
        "0 ok",
        "1 the run failed",
        "2 usage",
        "3 no connection",
        "4 timeout",
        "5 the run is paused",
        "130 int",
    ):
        assert word in told


def test_a_command_that_is_killed_as_it_begins_harms_no_other_one(
    forked_commands: Path, alone: Project
) -> None:
    for begun in (b"", b"\0\0\0\7", b"\0\0\0\7{"):
        with socket.socket(socket.AF_UNIX) as killed:
            killed.connect(str(forked_commands / "socket"))
            if begun:
                socket.send_fds(killed, [begun], [0, 1, 2])
    assert alone.run("--version").code == 0


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    script = (
        "import sys\nfrom foldlog.adapters.cli.app import app\n"
        f"try:\n    app({args!r}, prog_name='foldlog')\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "foldlog" in done.stdout
    assert HEAVY.isdisjoint(done.stderr.split())


def test_no_arguments_show_the_help_and_exit_2() -> None:
    result = invoke()
    assert result.exit_code == 2
    assert "Commands:" in result.output


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ["nothing"],
        ["run"],
        ["run", "a:b"],
        ["run", "a:b", "q", "--executor", "magic"],
        ["run", "a:b", "q", "--nothing"],
        ["run", "a:b", "q", "--timeout", "soon"],
        ["run", "examples.weather:agent", "q", "--executor", "durable", "--server", "memory://"],
        ["runs", "drive", "some", "--executor", "local", "--server", "memory://"],
        ["fork", "some", "--at", "1", "--executor", "local", "--server", "memory://"],
        ["worker", "a:b", "--concurrency", "0"],
        ["worker", "a:b", "--server", "memory://"],
        ["runs", "list", "--status", "odd"],
        ["approvals", "approve"],
        ["approvals", "approve", "ap", "--arguments", "{"],
        ["approvals", "approve", "ap", "--arguments", "[]"],
        ["approvals", "approve", "ap", "--result", "x"],
        ["approvals", "approve", "ap", "--outcome", "maybe"],
        ["knowledge", "search", "x", "--limit", "100000000000000000000"],
        ["--namespace"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2_and_says_what_is_wrong(args: list[str]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert "Error: " in result.stderr
    assert "Traceback" not in result.output


def test_bytes_that_are_not_text_are_refused_and_named() -> None:
    result = invoke("runs", "show", "caf\udce9")
    assert result.exit_code == 2
    assert result.stderr == "error: the argument 'caf\\udce9' is not text in UTF-8\n"


@pytest.mark.parametrize("time", ["nan", "inf", "-3s", "0", "soon", ""])
def test_what_is_not_a_time_is_refused(time: str) -> None:
    result = invoke("simulate", "--for", time)
    assert result.exit_code == 2
    assert "write a duration as 30s" in result.stderr


def test_a_mistyped_command_is_told_the_nearest() -> None:
    assert "Did you mean 'runs'" in invoke("rums").stderr


def test_global_options_may_come_after_the_command() -> None:
    args = ["runs", "list", "-s", "nats://a", "--namespace=b", "--quiet", "--status", "paused"]
    assert root.hoisted(args) == [
        "-s",
        "nats://a",
        "--namespace=b",
        "--quiet",
        "runs",
        "list",
        "--status",
        "paused",
    ]


def test_what_follows_two_dashes_is_not_an_option() -> None:
    assert root.hoisted(["run", "a:b", "--", "--quiet"]) == ["run", "a:b", "--", "--quiet"]


def test_the_value_of_an_option_is_not_a_global_option_and_a_global_option_has_a_value() -> None:
    command = typer.main.get_command(root.app)
    args = ["runs", "list", "--session", "-s", "--agent", "-q", "-n", "-x"]
    assert root.hoisted(args, command) == ["-n", "-x", "runs", "list", "--session", "-s", "--agent", "-q"]
    assert "'--namespace' requires an argument" in invoke("run", "a:b", "x", "--namespace").stderr


def test_the_commands_that_mean_many_runs_say_which_by_the_same_options() -> None:
    commands = typer.main.get_command(root.app).commands["runs"].commands  # type: ignore[attr-defined]
    filters = {
        "--status",
        "--agent",
        "--since",
        "--until",
        "--error-type",
        "--waiting-for",
        "--user",
        "--metadata",
        "--session",
        "--root",
    }
    bulk = {"--all", "--rate", "--dry-run"}
    for name in ("list", "cancel", "resume", "retry"):
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert filters | {"--limit", "--json"} < options
        assert options & bulk == (set() if name == "list" else bulk)


def test_a_name_that_begins_with_a_dash_comes_after_two_dashes(alone: Project) -> None:
    begun = alone.run("run", "project_agents:failing", "x", "--run-id", "-x", "--namespace", "-n")
    assert (begun.code, "run -x  agent failing" in begun.err) == (1, True)
    assert "a name that begins with - goes after --" in alone.run("runs", "show", "-x").err
    unknown = alone.run("runs", "show", "--", "-x")
    assert (unknown.code, "has the id, prefix or suffix '-x'" in unknown.error) == (1, True)
    assert Settings().command("runs", "show", names=["-x"]) == "foldlog runs show -- -x"
    assert Settings().command("runs", "show", names=["x-"]) == "foldlog runs show x-"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise SystemExit(7)", "line 1: SystemExit: 7"),
        ("class Odd(BaseException): ...\nraise Odd('so')", "line 2: Odd: so"),
        ("import asyncio\nraise asyncio.CancelledError", "line 2: CancelledError: CancelledError"),
        ("def __getattr__(name): raise SystemExit(3)", "'registry' cannot be read: SystemExit: 3"),
    ],
)
def test_a_module_that_ends_the_process_as_it_is_imported_is_told_in_one_line(
    alone: Project, source: str, told: str
) -> None:
    (alone.place / "odd_module.py").write_text(source)
    done = alone.run("run", "odd_module:registry", "x")
    assert (done.code, done.out) == (2, "")
    assert told in done.error


def test_a_shown_command_reaches_the_same_log_and_holds_no_password() -> None:
    assert Settings().command("runs", "show", "a") == "foldlog runs show a"
    chosen = Settings(server="nats://host:1", namespace="other")
    assert (
        chosen.command("runs", "show", "a b")
        == "foldlog --server nats://host:1 --namespace other runs show 'a b'"
    )
    assert "secret" not in Settings(server="nats://me:secret@host").command("runs", "list")


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (AgentConfigError("x"), 2),
        (NotRegistered("x"), 2),
        (UnsupportedByExecutor("memory", "local", "x"), 2),
        (PayloadTooLarge("x", 2, 1), 2),
        (LogUnavailable("x"), 3),
        (AppendUnsure("x"), 3),
        (TimeoutError("x"), 4),
        (RunFailed("auth", "x", run_id="r", usage=TokenUsage(), steps=0), 1),
        (RunCancelled("x", run_id="r"), 1),
        (RunNotFound("x"), 1),
        (RunConflict("x", run_id="r"), 1),
        (RunFinished("x"), 1),
        (ApprovalError("x"), 1),
        (LogCorrupted("r", 1, "x"), 1),
        (Conflict("x"), 1),
        (FoldlogError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_its_exit_code_and_at_most_one_line(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exits.report(error) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == (0 if isinstance(error, KeyboardInterrupt) else 1)


def test_an_error_of_many_lines_becomes_one_and_cannot_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exits.report(ConfigError("first\n\n  second\x1b[2J"))
    assert capsys.readouterr().err == "error: first; second[2J\n"


def test_a_bug_of_ours_is_one_line_and_its_traceback_lies_in_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert exits.report(ZeroDivisionError("oh")) == 1
    told = capsys.readouterr().err
    (file,) = tmp_path.iterdir()
    assert told == (
        f"error: ZeroDivisionError: oh: this is a bug in foldlog; the traceback is in {file}; please report it\n"
    )
    assert "ZeroDivisionError: oh" in file.read_text()


def test_debugging_shows_tracebacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLOG_DEBUG", "1")
    exits.report(ConfigError("oh"))
    assert "ConfigError: oh" in capsys.readouterr().err


# --- text and formats -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "character", ["\x00", "\x07", "\x08", "\x0d", "\x1b", "\x7f", "\x85", "\x9b", "\u202e", "\u2066"]
)
def test_nothing_that_a_terminal_obeys_is_left_in_a_text(character: str) -> None:
    text = f"a{character}b"
    assert clean(text) == "ab"
    assert one_line(f"{text}\nc") == "ab c"
    assert character not in json_text({"text": text})
    assert json.loads(json_text({"text": text})) == {"text": text}


def test_lines_are_cut_to_the_width_that_there_is() -> None:
    assert one_line("abcdef", 4) == "abc…"
    assert shown({"a": [1, "x"]}) == '{"a":[1,"x"]}'


# Texts of all kinds, those that have no place in a line, cannot be seen or turn the writing around among them.
TEXTS = st.text() | st.text(alphabet='ab \n\t\r\\"│┆\u202e\u200b\u00a0\x1b\u3164\ufe0f\U000e0041\U0001f600')
ARGUMENTS = st.dictionaries(
    TEXTS,
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


@given(ARGUMENTS)
def test_what_is_shown_exactly_reads_back_as_what_it_was_and_has_no_character_that_is_not_seen(
    arguments: dict[str, object],
) -> None:
    line = exact(arguments)
    assert json.loads(line) == arguments
    assert line.isprintable()


@given(TEXTS, st.integers(0, 60))
def test_a_text_of_several_lines_is_a_block_that_reads_back_whatever_is_folded(text: str, width: int) -> None:
    lines = exact_lines({"text": f"{text}\n{text}"}, width)
    assert lines[0] == "text:"
    assert all(line.isprintable() and not line.endswith(" ") for line in lines if line.strip() != "│")
    assert not width or all(cell_len(line) <= max(width, 30) for line in lines)
    found: list[str] = []
    for line in lines[1:]:
        assert line.startswith(("  │ ", "  ┆ "))
        if line[2] == "│":
            found.append("")
        found[-1] += line[4:]
    unquoted = "\n".join(found).replace('"', '\\"').replace("\n", "\\n")
    assert json.loads(f'"{unquoted}"') == f"{text}\n{text}"


def test_arguments_of_one_line_are_json_and_those_of_several_have_a_line_for_each() -> None:
    assert exact_lines({"to": "ada  b ", "n": 1}) == ['{"to":"ada  b ","n":1}']
    assert exact_lines({"to": "a", "edits": [{"old": "x\n  y ", "new": ""}, 7]}) == [
        'to: "a"',
        "edits:",
        "  -",
        "    old:",
        "      │ x",
        "      │   y\\u0020",
        '    new: ""',
        "  - 7",
    ]
    assert exact_lines({"a": "\x1b[2Jx\u202ey\u200b"}) == ['{"a":"\\u001b[2Jx\\u202ey\\u200b"}']


def test_a_folded_line_cannot_pass_for_one_of_ours() -> None:
    arguments = {"command": "true" + " " * 30 + "foldlog approvals approve ap-1"}
    lines = exact_lines(arguments, 40)
    assert len(lines) > 1
    assert all(line.startswith("┆ ") for line in lines[1:])


def test_newlines_tabs_and_other_scripts_stay() -> None:
    assert clean("a\n\tß→日本\r\n") == "a\n\tß→日本\n"


def test_the_schema_of_commits_is_a_schema_and_describes_an_event() -> None:
    result = invoke("schema", "json")
    assert result.exit_code == 0
    schema = json.loads(result.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert Text(text="x").type in json.dumps(schema)


@pytest.mark.parametrize(
    ("kind", "configuration"),
    [
        ("config", {"name": "agent", "model": "openai:gpt-4o"}),
        ("swarm", {"agents": [{"name": "a"}, {"kind": "agent", "name": "b"}], "flow": "a >> b"}),
        ("ralph", {"name": "l", "runnable": {"kind": "agent", "config": {"name": "a"}}}),
    ],
)
def test_the_schema_of_configurations_accepts_a_configuration(
    kind: str, configuration: dict[str, Any]
) -> None:
    result = invoke("schema", kind)
    assert result.exit_code == 0
    schema = json.loads(result.stdout)
    jsonschema.validate(configuration, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**configuration, "nam": "x"}, schema)


def test_the_version_is_that_of_the_distribution() -> None:
    assert invoke("--version").stdout == "foldlog 0.1.0\n"


def test_an_empty_log_has_no_runs() -> None:
    result = invoke("runs", "list", "--json", "-s", "memory://")
    assert (result.exit_code, result.stdout) == (0, "[]\n")


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line where the examples are."""
    monkeypatch.chdir(Path(__file__).parents[2])


def test_a_run_is_given_messages_and_metadata(examples: None, tmp_path: Path) -> None:
    (tmp_path / "before.json").write_text('[{"role": "user", "content": "Hi"}]')
    options = ("--messages", str(tmp_path / "before.json"), "--metadata", '{"memory": {"scope": {}}}')
    refused = invoke("run", "examples.barber:agent", "The usual", "-s", "memory://", *options)
    assert refused.exit_code == exits.USAGE
    assert "memory of scope 'user' needs a user" in refused.stderr
    options = (*options[:3], '{"memory": {"scope": {"user_id": "ada"}}}')
    assert invoke("run", "examples.barber:agent", "The usual", "-s", "memory://", *options).exit_code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ('{"role": "user"}', "must hold a JSON list of messages"),
        ('[{"role": "system", "content": "x"}]', "messages: message 1: the role is user, assistant or tool"),
        ('[{"role": "user", "content": "x", "name": "y"}]', "messages: message 1: unknown field 'name'"),
        (
            '[{"role": "tool", "tool_call_id": "a"}]',
            "messages: message 1: a result for 'a', which no message",
        ),
        (None, "cannot be read"),
    ],
)
def test_messages_that_are_none_are_refused_before_the_run(
    examples: None, tmp_path: Path, text: str | None, told: str
) -> None:
    path = tmp_path / "before.json"
    if text is not None:
        path.write_text(text)
    result = invoke("run", "examples.weather:agent", "x", "-s", "memory://", "--messages", str(path))
    assert result.exit_code == exits.USAGE
    assert told in " ".join(result.stderr.split())
    assert result.stdout == ""
