"""Links inside the documents lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import DOCUMENTS, ROOT, Link, anchors, links, name_of
from tests.unit.test_layers import ROOMS

FOLDERS = ("adapters", "docs", "eventlog", "examples", "projections", "replay", "runtime", "tests")


def broken(document: Path, link: Link) -> bool:
    """Return whether a link leads to no file of the repository, or to no heading of it."""
    path, _, anchor = link.target.partition("#")
    target = (document.parent / path).resolve() if path else document
    if not target.exists() or not target.is_relative_to(ROOT):
        return True
    return bool(anchor) and anchor not in anchors(target)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_within_the_repository_lead_to_files_and_their_headings(document: Path) -> None:
    inside = [link for link in links(document) if "://" not in link.target]
    assert [f"{link.line}: {link.target}" for link in inside if broken(document, link)] == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    readme = ROOT / "README.md"
    for target in ("docs/none.md", "../outside.md", "#none", "docs/how-to/forks.md#none"):
        assert broken(readme, Link(line=1, target=target)), target


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
