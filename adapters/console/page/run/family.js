// The tree that a run belongs to: children below their parents, forks below their origins.
import { useState } from "../vendor/preact.js";
import { html, Id, Loaded, Status, Time, useLoaded } from "../parts.js";
import { at, get } from "../api.js";
import { plural, visible } from "../text.js";

/** @param {{id: string, turn: number}} props */
export function Family({ id, turn }) {
  const [open, show] = useState(false);
  return html`<details class="family" open=${open} onToggle=${(/** @type {any} */ e) => show(e.target.open)}><summary>Tree of forks and children</summary>${open ? html`<${Tree} id=${id} turn=${turn} />` : null}</details>`;
}

/** @param {{id: string, turn: number}} props */
function Tree({ id, turn }) {
  const tree = useLoaded(`tree ${id} ${turn}`, (signal) => get(`/runs${at(id)}/tree`, signal));
  return html`<${Loaded} of=${tree} lines=${3}>${(/** @type {any} */ { rows, more }) => html`<div class="scroll-x" tabindex="0" role="group" aria-label="Tree of forks and children"><table class="plain branches"><thead><tr><th>Run</th><th>Is</th><th>Agent</th><th>Status</th><th>Started</th></tr></thead><tbody>${rows.map((/** @type {any} */ { row, depth, relation }) => html`<tr key=${row.run_id} class=${row.run_id === id ? "at" : ""} aria-current=${row.run_id === id ? "true" : undefined}><td style=${{ paddingLeft: `${Math.min(depth, 12) * 1.1}rem` }}>${depth ? html`<span class="dim" aria-hidden="true">${relation === "fork" ? "⑂ " : "↳ "}</span>` : null}<${Id} id=${row.run_id} href=${`/runs${at(row.run_id)}`} copy=${false} /></td><td>${relation === "fork" ? `fork at ${row.forked_at}` : relation === "child" ? `child, level ${depth}` : "the top"}</td><td>${visible(row.agent)}</td><td><${Status} status=${row.status} /></td><td><${Time} at=${row.submitted_at} /></td></tr>`)}</tbody></table></div>${more ? html`<p class="dim">${plural(rows.length, "run")} shown; there are more.</p>` : null}`}<//>`;
}
