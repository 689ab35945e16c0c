"""Links inside the documents lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import DOCUMENTS, ROOT, Link, anchors, links, name_of
from tests.unit.test_layers import ROOMS

FOLDERS = ("adapters", "docs", "eventlog", "examples", "projections", "replay", "runtime", "tests")
INSIDE = [
    pytest.param(document, link, id=f"{name_of(document)}:{link.line}:{link.target}")
    for document in DOCUMENTS
    for link in links(document)
    if "://" not in link.target
]


@pytest.mark.parametrize(("document", "link"), INSIDE)
def test_a_link_within_the_repository_leads_to_a_file_and_its_heading(document: Path, link: Link) -> None:
    path, _, anchor = link.target.partition("#")
    target = (document.parent / path).resolve() if path else document
    assert target.exists(), f"{link.target} leads nowhere"
    assert target.is_relative_to(ROOT)
    if anchor:
        assert anchor in anchors(target), f"{name_of(target)} has no heading for #{anchor}"


MAINTAINED = ("architecture", "changing", "contract", "protocol", "testing")


@pytest.mark.parametrize("name", MAINTAINED)
def test_a_file_of_which_maintainers_are_told_exists(name: str) -> None:
    text = (ROOT / "docs" / "maintainers" / f"{name}.md").read_text()
    named = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w/.]*)(?:::\w+)?`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_rooms_of_the_runtime_are_told_with_what_each_may_import() -> None:
    text = (ROOT / "docs" / "maintainers" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*)\| `runtime/", text, re.MULTILINE)
    assert {room: set(re.findall(r"\w+", allowed)) for room, allowed in rows} == ROOMS["runtime"]


def test_the_readme_names_every_how_to_page_once() -> None:
    named = [link.target for link in links(ROOT / "README.md") if link.target.startswith("docs/how-to/")]
    contents = (ROOT / "README.md").read_text().partition("## Documentation")[2]
    pages = sorted(f"docs/how-to/{page.name}" for page in (ROOT / "docs/how-to").glob("*.md"))
    assert sorted(page for page in set(named) for _ in range(contents.count(f"({page})"))) == pages


def test_every_document_is_reached_from_the_readme() -> None:
    reached, todo = set[Path](), [ROOT / "README.md"]
    while todo:
        document = todo.pop()
        reached.add(document)
        targets = ((document.parent / link.target.partition("#")[0]).resolve() for link in links(document))
        todo += [
            target
            for target in targets
            if target.suffix == ".md" and target.is_file() and target not in reached
        ]
    assert [name_of(document) for document in DOCUMENTS if document not in reached] == []
