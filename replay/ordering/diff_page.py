"""A comparison as one HTML page that loads and runs nothing. Its strings are untrusted, so all are escaped."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..canonical.canonical import Boundary
    from .alignment import Diff, Row

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
VALUE_MAX = 4000
"""Length in characters at which values are cut on the page."""
ROWS_MAX = 3000
"""Maximum number of rows; browsers become slow with more."""

_STYLE = """
:root { color-scheme: light dark; --line: #d8dee4; --dim: #636c76; --bad: #cf222e; --good: #1a7f37; --ask: #9a6700;
  --left: #ffebe9; --right: #dafbe1; --changed: #fff8c5; --page: #ffffff; --text: #1f2328; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --dim: #9198a1; --bad: #f85149; --good: #3fb950;
  --ask: #d29922; --left: #3c1618; --right: #12301b; --changed: #332a0b; --page: #0d1117; --text: #f0f6fc; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1.5rem; background: var(--page); color: var(--text);
  font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .25rem; }
.equal { color: var(--good); } .different { color: var(--bad); }
.dim { color: var(--dim); }
.first { border: 1px solid var(--line); border-left: 4px solid var(--bad); border-radius: 6px; padding: .75rem 1rem;
  margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; margin-top: 1rem; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; }
th { position: sticky; top: 0; background: var(--page); z-index: 1; }
col.mark { width: 2.2rem; }
tr.left td.l { background: var(--left); } tr.right td.r { background: var(--right); }
tr.changed td.l, tr.changed td.r { background: var(--changed); }
tr.gap td { color: var(--dim); text-align: center; font-size: .85rem; }
.label { font-weight: 600; } .where { color: var(--dim); font-size: .85em; margin-left: .5em; }
dl { margin: .35rem 0 .2rem; display: grid; grid-template-columns: max-content 1fr; gap: .15rem .6rem; }
dt { color: var(--ask); font-weight: 600; } dd { margin: 0; }
code, pre { font: 12px/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
details summary { cursor: pointer; color: var(--dim); font-size: .85em; }
"""


def page(found: Diff, names: tuple[str, str], roots: tuple[str, str]) -> str:
    """Return the whole document."""
    return "\n".join(_lines(found, names, roots)) + "\n"


def text(value: object) -> str:
    """Return any text as HTML: escaped, with invisible and direction-changing characters made visible."""
    seen = _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", str(value))
    return html.escape(seen, quote=True)


def _lines(found: Diff, names: tuple[str, str], roots: tuple[str, str]) -> Iterator[str]:
    equal, total = found.boundaries
    word = "equal" if found.equal else "different"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>foldlog diff: {word}</title>\n<style>{_STYLE}</style>\n</head>\n<body>"
    yield f'<h1><span class="{word}">{word}</span>: {equal} of {total} boundaries</h1>'
    for side, name, root, form in zip(
        ("left", "right"), names, roots, (found.left, found.right), strict=True
    ):
        shown = name if name == root else f"{name} (run {root})"
        digest = f"<code>{text(form.digest[:16])}</code>"
        yield f'<div><span class="dim">{side}</span> {text(shown)}'
        yield f'<span class="dim">{form.size} boundaries, canonical digest {digest}</span></div>'
    yield from _first(found)
    yield '<table>\n<colgroup><col class="mark"><col><col></colgroup>'
    yield f"<thead><tr><th></th><th>{text(names[0])}</th><th>{text(names[1])}</th></tr></thead>\n<tbody>"
    rows = found.excerpt()
    for row in rows[:ROWS_MAX]:
        yield _gap(f"{row} equal") if isinstance(row, int) else _row(row)
    if len(rows) > ROWS_MAX:
        yield _gap(f"{len(rows) - ROWS_MAX} more lines are omitted; --json has them")
    yield "</tbody>\n</table>\n</body>\n</html>"


def _first(found: Diff) -> Iterator[str]:
    from .rule_texts import explain

    first = found.comparison.first_difference
    if first is None:
        return
    yield f'<div class="first"><strong>First difference</strong>: level {first.level}, rule {text(first.rule)}<br>'
    yield f'{text(first.why)}<br><span class="dim">{text(explain(first.rule))}</span>'
    for side, revisions in zip(("left", "right"), first.revisions, strict=True):
        at = ", ".join(f"{run} revision {revision}" for run, revision in revisions) or "nothing at this level"
        yield f'<br><span class="dim">{side}: {text(at)}</span>'
    yield "</div>"


def _gap(told: str) -> str:
    return f'<tr class="gap"><td></td><td colspan="2">{told}</td></tr>'


_MARKS = {"same": "", "changed": "≠", "left": "&minus;", "right": "+"}


def _row(row: Row) -> str:
    values = row.values
    left = _cell(row.left, {name: pair[0] for name, pair in values.items()}, whole=row.kind == "left")
    right = _cell(row.right, {name: pair[1] for name, pair in values.items()}, whole=row.kind == "right")
    return f'<tr class="{row.kind}"><td>{_MARKS[row.kind]}</td><td class="l">{left}</td><td class="r">{right}</td></tr>'


def _cell(boundary: Boundary | None, differing: dict[str, Any], *, whole: bool) -> str:
    if boundary is None:
        return ""
    at = ", ".join(map(str, boundary.revisions))
    step = "" if boundary.step is None else f"step {boundary.step}, "
    where = f"{boundary.run}, {step}revision {at}"
    parts = [f'<span class="label">{text(boundary.label)}</span><span class="where">{text(where)}</span>']
    if differing:
        fields = "".join(
            f"<dt>{text(name)}</dt><dd><code>{_value(value)}</code></dd>" for name, value in differing.items()
        )
        parts.append(f"<dl>{fields}</dl>")
    if differing or whole:
        from ..canonical.canonical import payload_of

        payload = json.dumps(payload_of(boundary), indent=2, ensure_ascii=False)
        parts.append(f"<details><summary>all fields</summary><pre>{_cut(payload)}</pre></details>")
    return "".join(parts)


def _value(value: Any) -> str:
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(value: str) -> str:
    return text(value if len(value) <= VALUE_MAX else f"{value[:VALUE_MAX]}… ({len(value)} characters)")
