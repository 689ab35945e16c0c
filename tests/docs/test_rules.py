"""The law of the house: every rule that is cited exists, says why, and names a test that names it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from foldlog.replay.ordering.rule_texts import RULES, explain, link

from tests.docs.markdown import ROOT, anchors, name_of

PAGES = [ROOT / "docs" / "maintainers" / name for name in ("contract.md", "protocol.md")]
_RULE = re.compile(r"^### ([PRW]\d+)\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
_CITED = re.compile(r"\b([PRW])(\d{1,2})(?: to \1?(\d{1,2}))?\b")
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
# Where rules are cited: code, its tests and their tables, and all that is written about them.
CITING = ("*.py", "*.md", "*.toml", "*.js")
FOLDERS = (
    "adapters",
    "benchmarks",
    "docs",
    "eventlog",
    "examples",
    "projections",
    "replay",
    "runtime",
    "tests",
)


class Rule(NamedTuple):
    """A rule as its page has it."""

    id: str
    statement: str
    why: str
    tests: list[tuple[str, str]]


def rules_of(page: Path) -> list[Rule]:
    return [
        Rule(
            name,
            " ".join(re.findall(r"\*\*(.+?)\*\*", text, re.DOTALL)[:1]).replace("\n", " "),
            text.partition("\nWhy: ")[2],
            _TEST.findall(text),
        )
        for name, text in _RULE.findall(page.read_text(encoding="utf-8"))
    ]


def cited_in(text: str) -> Iterator[str]:
    """The ids that a text cites; `R1 to R3` cites three."""
    for kind, first, last in _CITED.findall(text):
        yield from (f"{kind}{number}" for number in range(int(first), int(last or first) + 1))


def citing_files() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md")
    for folder in FOLDERS:
        for pattern in CITING:
            yield from (path for path in (ROOT / folder).rglob(pattern) if "node_modules" not in path.parts)


def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


ALL = [rule for page in PAGES for rule in rules_of(page)]
NAMES = [rule.id for rule in ALL]


def test_every_rule_that_is_cited_exists() -> None:
    cited = {
        (name, name_of(path))
        for path in citing_files()
        for name in cited_in(path.read_text(encoding="utf-8"))
    }
    assert {name for name, _ in cited} >= set(NAMES)
    assert sorted(place for place in cited if place[0] not in NAMES) == []


def test_every_decision_that_is_cited_exists() -> None:
    records = {path.name[:4] for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
    cited = {
        (number, name_of(path))
        for path in citing_files()
        for number in re.findall(r"\bADR (\d{4})\b", path.read_text(encoding="utf-8"))
    }
    assert cited
    assert sorted(place for place in cited if place[0] not in records) == []


def test_every_rule_has_one_text() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert {name[0] for name in NAMES} == {"P", "R", "W"}


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_a_rule_says_why_and_names_tests_that_exist_and_name_it(rule: Rule) -> None:
    assert rule.statement
    assert rule.why
    assert rule.tests
    for path, function in rule.tests:
        assert function in functions_in(ROOT / path), f"{path} has no {function}"
        assert rule.id in cited_in((ROOT / path).read_text(encoding="utf-8")), (
            f"{path} does not name {rule.id}"
        )


@pytest.mark.parametrize("name", RULES)
def test_what_is_printed_of_a_rule_is_its_text_and_leads_to_it(name: str) -> None:
    (rule,) = [rule for rule in ALL if rule.id == name]
    assert rule.statement[0].lower() + rule.statement[1:].removesuffix(".") == RULES[name]
    page, _, anchor = link(name).partition("#")
    assert anchor in anchors(ROOT / page)
    assert link(name) in explain(name)


def test_ids_are_found_alone_and_in_ranges() -> None:
    assert list(cited_in("R1 to R3, `W10` and P20; no SR1, no R100")) == ["R1", "R2", "R3", "W10", "P20"]
