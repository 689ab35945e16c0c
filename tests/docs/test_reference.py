"""The reference says what the code has: every event, setting, variable, command, exit code and error, and no other."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer.main
from foldlog.adapters.cli import exits
from foldlog.adapters.cli.app import app
from foldlog.adapters.console.table import ROUTES
from foldlog.adapters.models.configured import ProviderTable
from foldlog.adapters.models.prices import PriceTable
from foldlog.adapters.models.scripted import Turn
from foldlog.eventlog import commits, errors, events
from foldlog.eventlog.embedded import errors as embedded_errors
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.eventlog.offload import LARGE_FIELDS
from foldlog.runtime import RunHandle, Runtime, tool
from foldlog.runtime.agents.config import (
    AgentConfig,
    BreakerConfig,
    BudgetsConfig,
    ConcurrencyConfig,
    ContextConfig,
    PolicyConfig,
    PolicyRuleConfig,
    RetryConfig,
    capabilities_needed,
)
from foldlog.runtime.agents.loop_config import RalphConfig, Stop
from foldlog.runtime.agents.mcp_servers import HttpServer, StdioServer
from foldlog.runtime.agents.swarm_config import SwarmConfig
from foldlog.runtime.ports import archives, knowledge, models, tools
from foldlog.runtime.ports.executor import CAPABILITIES

from tests.docs.markdown import ROOT, prose

REFERENCE = ROOT / "docs" / "reference"
FOLDERS = ("adapters", "eventlog", "projections", "replay", "runtime")
COMMON_FIELDS = set(events.EventFields.__struct_fields__)
_CODE = re.compile(r"`([^`]+)`")


def rows(document: str, heading: str) -> list[list[str]]:
    """The cells of the table (without its head) in the section of a heading."""
    found: list[list[str]] = []
    here = False
    for _, line in prose(REFERENCE / document):
        if line.startswith("#"):
            here = line.lstrip("#").strip() == heading
        elif here and line.startswith("|"):
            found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    assert found, f"{document} has no table under {heading!r}"
    return found[2:]


def names(cells: str) -> list[str]:
    """Return the texts in backticks."""
    return _CODE.findall(cells)


def first_column(document: str, heading: str) -> list[str]:
    return [name for row in rows(document, heading) for name in names(row[0])]


def source_text() -> Iterator[str]:
    for folder in FOLDERS:
        yield from (path.read_text() for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize(
    ("heading", "kinds"),
    [
        ("Observable events", events.OBSERVABLE),
        ("Drafts", events.DRAFTS),
        ("Engine events", events.ENGINE),
    ],
)
def test_every_event_and_each_of_its_fields_is_described(
    heading: str, kinds: tuple[type[events.Event], ...]
) -> None:
    described = {names(row[0])[0]: names(row[1]) for row in rows("events.md", heading)}
    assert described == {
        str(kind.__struct_config__.tag): [f for f in kind.__struct_fields__ if f not in COMMON_FIELDS]
        for kind in kinds
    }


def test_every_route_of_the_http_api_is_described_with_its_role() -> None:
    described = {names(row[0])[0]: row[1] for row in rows("http.md", "Routes")}
    assert described == {f"{route.method} {route.path}": route.role or "-" for route in ROUTES}


def test_the_fields_of_every_event_are_described() -> None:
    assert set(first_column("events.md", "Fields of every event, as read")) == COMMON_FIELDS | {"type"}


def test_every_error_type_that_the_core_writes_is_described() -> None:
    kinds = {
        kind.error_type
        for kind in vars(models).values()
        if inspect.isclass(kind) and hasattr(kind, "error_type")
    }
    literals = re.compile(r'(?:fail\(\s*|Failure\(|error_type=)"(\w+)"')
    written = {
        name for path in (ROOT / "runtime").rglob("*.py") for name in literals.findall(path.read_text())
    }
    assert set(first_column("events.md", "Error types")) == kinds | written


def test_every_field_of_an_agent_is_described_with_its_default() -> None:
    described = {names(row[0])[0]: row[2] for row in rows("configuration.md", "Agents")}
    assert list(described)
    assert set(described) == set(AgentConfig.model_fields)
    defaults = AgentConfig(name="agent").model_dump(mode="json")
    for name, text in described.items():
        if name == "name":
            assert text == "required"
        elif name == "retry":
            assert text == "see below"
        else:
            assert text == f"`{msgspec.json.encode(defaults[name]).decode()}`", name


def test_no_field_of_an_agent_is_refused_by_an_executor_that_is_shipped() -> None:
    everything = AgentConfig.from_config(
        {
            "name": "agent",
            "tools": ["a"],
            "mcp_servers": {"srv": {"command": "true"}},
            "hitl_tools": ["a"],
            "policy": {"default": "require_approval"},
            "budgets": {"max_tokens": 1},
            "allow_self_spawn": True,
            "allow_parallel_subagents": True,
            "concurrency": {"runs_max": 1},
            "context": {"mode": "pilot"},
            "budget_awareness": "per-message",
            "fallback_models": ["openai:other"],
            "memory": {"scope": "session"},
            "planning_enabled": True,
        }
    )
    asked_for_at_a_call = {"detailed_events", "drafts", "messages", "inject", "pause", "artifacts"}
    assert capabilities_needed(everything) == CAPABILITIES - asked_for_at_a_call
    assert [row for row in rows("configuration.md", "Agents") if "refused when set" in row[3]] == []


def test_every_field_of_a_swarm_is_described_with_its_default() -> None:
    described = {names(row[0])[0]: row[2] for row in rows("configuration.md", "Swarms")}
    defaults = SwarmConfig().model_dump(mode="json")
    assert described.pop("agents") == "required"
    assert described == {name: f"`{msgspec.json.encode(value).decode()}`" for name, value in defaults.items()}


def test_every_field_of_a_loop_and_of_its_stop_is_described_with_its_default() -> None:
    described = {names(row[0])[0]: row[2] for row in rows("configuration.md", "Loops")}
    assert list(described) == ["kind", *(name for name in RalphConfig.model_fields if name != "kind")]
    required = {name for name, field in RalphConfig.model_fields.items() if field.is_required()}
    assert {name for name, text in described.items() if text == "required"} == required
    assert [described[name] for name in ("kind", "scorers", "reflects")] == ['`"ralph"`', "`[]`", "`false`"]
    stops = {names(row[0])[0]: row[1] for row in rows("configuration.md", "`stop`")}
    defaults = Stop().model_dump(mode="json")
    assert stops == {name: f"`{msgspec.json.encode(value).decode()}`" for name, value in defaults.items()}


def test_every_field_of_the_retry_table_is_described_with_its_default() -> None:
    described = {names(row[0])[0]: row[2] for row in rows("configuration.md", "`retry`")}
    defaults = RetryConfig().model_dump(mode="json")
    assert described == {name: f"`{msgspec.json.encode(value).decode()}`" for name, value in defaults.items()}


def test_every_field_of_the_breaker_table_is_described_with_its_default() -> None:
    described = {names(row[0])[0]: row[2] for row in rows("configuration.md", "`breaker`")}
    defaults = BreakerConfig().model_dump(mode="json")
    assert described == {name: f"`{value}`" for name, value in defaults.items()}


def test_every_field_of_a_policy_and_of_its_rules_is_described() -> None:
    described = first_column("configuration.md", "`policy`")
    rule = ["field of a rule", *PolicyRuleConfig.model_fields]
    assert [name for name in described if name not in rule] == list(PolicyConfig.model_fields)
    assert [name for name in described if name in rule] == rule[1:]


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("`context`", ContextConfig),
        ("`budgets`", BudgetsConfig),
        ("`concurrency`", ConcurrencyConfig),
    ],
)
def test_every_field_of_a_table_is_described_with_its_default(heading: str, table: Any) -> None:
    described = {names(row[0])[0]: row[2] for row in rows("configuration.md", heading)}
    defaults = table().model_dump(mode="json")
    assert described == {name: f"`{msgspec.json.encode(value).decode()}`" for name, value in defaults.items()}


def test_every_key_of_an_mcp_server_is_described() -> None:
    keys = {*StdioServer.__struct_fields__, *HttpServer.__struct_fields__}
    assert set(first_column("configuration.md", "MCP servers")) == keys


def test_every_key_of_a_provider_is_described() -> None:
    assert set(first_column("configuration.md", "Providers")) == set(ProviderTable.model_fields)


def test_every_key_of_a_price_is_described() -> None:
    assert set(first_column("configuration.md", "Prices")) == set(PriceTable.model_fields)


def test_every_key_of_a_scripted_turn_is_described() -> None:
    assert first_column("configuration.md", "Scripted models") == list(Turn.model_fields)


def test_every_option_of_a_tool_is_described_with_its_default() -> None:
    described = {names(row[0])[0]: row[1] for row in rows("configuration.md", "Tools")}
    options = {
        name: parameter.default
        for name, parameter in inspect.signature(tool).parameters.items()
        if name != "function"
    }
    assert list(described) == list(options)
    stated = {name: names(text) for name, text in described.items() if names(text)}
    assert {name: ast.literal_eval(text[0]) for name, text in stated.items()} == {
        name: default for name, default in options.items() if default is not None
    }


def test_every_variable_of_ours_is_described_and_no_other() -> None:
    read = {name for text in source_text() for name in re.findall(r"FOLDLOG_[A-Z_]*[A-Z]", text)}
    composed = set(re.findall(r"FOLDLOG_[A-Z_]*[A-Z]", (ROOT / "compose.yaml").read_text()))
    assert set(first_column("environment.md", "Of foldlog")) == read | composed


def test_every_command_and_each_of_its_options_is_described() -> None:
    text = (REFERENCE / "cli.md").read_text()
    sections = dict(re.findall(r"^### `foldlog ([^`]+)`\n(.*?)(?=^### |\Z)", text, re.DOTALL | re.MULTILINE))
    known = dict(commands_of(typer.main.get_command(app)))
    assert set(sections) == set(known)
    for name, options in known.items():
        assert options <= set(re.findall(r"--[a-z-]+", sections[name])), name


def test_every_global_option_is_described() -> None:
    options = {option for parameter in typer.main.get_command(app).params for option in parameter.opts}
    described = set(first_column("cli.md", "Command line"))
    assert options | {"--help", "-h"} <= described


def commands_of(command: Any, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each command with its long options."""
    if subcommands := getattr(command, "commands", None):
        for name, subcommand in subcommands.items():
            yield from commands_of(subcommand, f"{path} {name}".strip())
    else:
        yield path, {o for p in command.params for o in p.opts if o.startswith("--") and o != "--help"}


def test_every_exit_code_is_described() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert {int(row[0]) for row in rows("cli.md", "Exit codes")} == codes


def test_the_tree_of_errors_is_the_one_of_the_code() -> None:
    text = (REFERENCE / "errors.md").read_text()
    drawn = re.findall(
        r"^([│├└─ ]*)(\w+)  ", text.partition("```text\n")[2].partition("```")[0], re.MULTILINE
    )
    parents: dict[str, str] = {}
    above: list[str] = []
    for indent, name in drawn:
        depth = len(indent) // 4
        above[depth:] = [name]
        if depth:
            parents[name] = above[depth - 1]
    kinds = [
        kind
        for module in (errors, embedded_errors, tools)
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, errors.FoldlogError)
        and kind.__module__ == module.__name__
    ]
    kinds += [models.ModelError, knowledge.KnowledgeUnavailable, archives.ArchiveUnavailable]
    real = {kind.__name__: kind.__bases__[0].__name__ for kind in kinds if kind is not errors.FoldlogError}
    assert parents == real


def test_every_field_of_a_commit_is_described() -> None:
    assert set(first_column("log.md", "Commits")) == set(commits.Commit.__struct_fields__)


def test_every_stream_and_subject_prefix_is_described() -> None:
    text = (REFERENCE / "log.md").read_text()
    layout = Layout("NS")
    configs = (
        layout.shard_config(0, 1, 1),
        layout.artifacts_config(1, 1),
        layout.leases_config(1),
        layout.drafts_config(),
    )
    for config in configs:
        assert f"`{config['name'].replace('_00', '_SS')}`" in text
        assert all(f"`{subject.replace('.00.', '.SS.')}`" in text for subject in config["subjects"])


PLUMBING = {
    "aclose",
    "executor",
    "known_executor",
    "failure",
    "index",
    "locate",
    "watch",
    "where_executors_run",
}


def public_methods(kind: type) -> set[str]:
    return {
        name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)
    } - PLUMBING


def test_every_method_of_a_run_is_described() -> None:
    described = {name.partition("(")[0].split()[-1] for name in first_column("python.md", "A run")}
    assert described == public_methods(RunHandle) | {"run_id", "is_new"}


def test_every_method_of_a_runtime_and_each_of_its_options_is_described() -> None:
    text = (REFERENCE / "python.md").read_text()
    signatures = text.partition("## The runtime")[2].partition("```text\n")[2].partition("```")[0]
    methods = set(re.findall(r"\brt\.(\w+)\(", signatures))
    assert methods == public_methods(Runtime)
    for function in (Runtime.open, Runtime.start, Runtime.run, Runtime.stream):
        parameters = inspect.signature(function).parameters.values()
        assert all(f"{p.name}=" in signatures for p in parameters if p.kind is p.KEYWORD_ONLY), function


def test_what_the_python_reference_imports_exists() -> None:
    text = (REFERENCE / "python.md").read_text()
    for path in set(re.findall(rf"`(foldlog\.(?:{'|'.join(FOLDERS)})(?:\.\w+)*)`", text)):
        module, _, attribute = path.rpartition(".")
        try:
            importlib.import_module(path)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), path


def test_every_public_name_of_the_runtime_is_described() -> None:
    public = importlib.import_module("foldlog.runtime").__all__
    text = (REFERENCE / "python.md").read_text()
    assert [name for name in public if not re.search(rf"\b{name}\b", text)] == []


def test_every_decision_has_its_four_parts_and_stands_in_the_list() -> None:
    folder: Path = ROOT / "docs" / "adr"
    listed = (folder / "README.md").read_text()
    records = sorted(folder.glob("[0-9]*.md"))
    assert len({record.name[:4] for record in records}) == len(records)
    for record in records:
        headings = [line.removeprefix("## ") for _, line in prose(record) if line.startswith("## ")]
        assert headings == ["Context", "Decision", "Consequences", "Rejected"], record.name
        assert f"]({record.name})" in listed


def test_every_field_that_may_be_stored_elsewhere_is_listed() -> None:
    section = (
        (REFERENCE / "log.md").read_text().partition("## Large values")[2].partition("The commit then")[0]
    )
    rows = [re.findall(r"`(\w+)`", line) for line in section.splitlines() if line.startswith("| `")]
    listed = {(tag, field) for *tags, field in rows for tag in tags}
    assert listed == {(str(kind.__struct_config__.tag), field) for kind, field in LARGE_FIELDS.items()}
