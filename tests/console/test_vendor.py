"""The vendored files are those that their README names."""

import hashlib
import re
from pathlib import Path

import foldlog.adapters.console

PAGE = Path(foldlog.adapters.console.__file__).parent / "page"


def test_the_vendored_file_has_the_hash_that_stands_beside_it() -> None:
    told = re.search(r"SHA-256: `([0-9a-f]{64})`", (PAGE / "vendor" / "README.md").read_text())
    assert told is not None
    assert hashlib.sha256((PAGE / "vendor" / "preact.js").read_bytes()).hexdigest() == told[1]


def test_each_vendored_package_is_there_with_the_text_of_its_licence() -> None:
    rows = re.findall(r"^\| (\S+) \| \d", (PAGE / "vendor" / "README.md").read_text(), re.MULTILINE)
    licences = (PAGE / "vendor" / "LICENSES.txt").read_text()
    assert rows == ["preact", "@preact/signals", "@preact/signals-core", "htm"]
    assert [name for name in rows if f"=== {name}\n" not in licences] == []


def test_no_file_of_the_page_has_what_its_policy_refuses() -> None:
    """No inline script or style, no eval, no HTML from text, no foreign address."""
    refused = re.compile(
        r"dangerouslySetInnerHTML|innerHTML|\beval\(|new Function|document\.write|javascript:|https?://(?!www\.w3\.org)"
    )
    for path in [*PAGE.glob("*.js"), *PAGE.glob("views/*.js"), *PAGE.glob("run/*.js")]:
        assert refused.findall(path.read_text()) == [], path
    index = (PAGE / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|\bstyle=|\bon\w+=|https?:", index) == []
