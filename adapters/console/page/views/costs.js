// Costs: tokens and dollars of the last days, grouped; unknown prices are counted apart, never as 0.
import { useEffect } from "../vendor/preact.js";
import { html, Empty, Loaded, useLoaded } from "../parts.js";
import { get, query } from "../api.js";
import { place, tune, url } from "../route.js";
import { count, money, visible } from "../text.js";
import { title } from "../shell.js";

const BY = ["day", "agent", "model", "session", "user"];
const DAYS = [1, 7, 30, 90];

/** A cell of CSV; one that a spreadsheet would compute is text. @param {any} value */
function cell(value) {
  const text = String(value ?? "");
  return `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}

/** @param {string} by @param {any[]} rows */
function save(by, rows) {
  const lines = [[by, "runs", "calls", "input_tokens", "output_tokens", "total_tokens", "cost_usd", "calls_without_price"], ...rows.map((row) => [row.key, row.runs, row.calls, row.usage.input_tokens, row.usage.output_tokens, row.usage.total_tokens, row.cost_usd, row.unpriced])];
  const address = URL.createObjectURL(new Blob([lines.map((line) => line.map(cell).join(",")).join("\r\n")], { type: "text/csv" }));
  Object.assign(document.createElement("a"), { href: address, download: `costs-by-${by}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** What is known of the cost of a group; what has no price is not counted as 0. @param {any} row */
function known(row) {
  if (!row.unpriced) return money(row.cost_usd);
  return Number(row.cost_usd) ? `at least ${money(row.cost_usd)}` : "unknown";
}

/** The runs of a group. @param {string} by @param {string} key */
function runsOf(by, key) {
  if (by !== "day") return `/runs?f=${encodeURIComponent(`${by}:"${key.replaceAll('"', "")}" children:yes forks:yes`)}`;
  const next = new Date(Date.parse(`${key}T00:00:00Z`) + 86400000).toISOString().slice(0, 10);
  return `/runs?f=${encodeURIComponent(`since:${key} until:${next} children:yes forks:yes`)}`;
}

export default function Costs() {
  const by = place.value.query.get("by") ?? "day", days = Number(place.value.query.get("days") ?? 30);
  const costs = useLoaded(`${by} ${days}`, (signal) => get(`/costs${query({ by, from: new Date(Date.now() - days * 86400000).toISOString().slice(0, 10) })}`, signal));
  useEffect(() => {
    title.value = "Costs";
  }, []);
  return html`<section class="view scroll"><header class="view-head"><h1>Costs</h1><span class="chips" role="group" aria-label="Grouped by">${BY.map((name) => html`<button type="button" key=${name} aria-pressed=${name === by} onClick=${() => tune({ by: name === "day" ? null : name })}>${name}</button>`)}</span><label>Last <select value=${days} onChange=${(/** @type {any} */ e) => tune({ days: e.target.value === "30" ? null : e.target.value })}>${DAYS.map((n) => html`<option key=${n} value=${n}>${n === 1 ? "day" : `${n} days`}</option>`)}</select></label></header>
    <${Loaded} of=${costs}>${(/** @type {any} */ { rows }) => {
      if (!rows.length) return html`<${Empty} title=${`No model calls in the last ${days === 1 ? "day" : `${days} days`}`} />`;
      const most = Math.max(...rows.map((/** @type {any} */ row) => row.usage.total_tokens), 1);
      return html`<div class="scroll-x" tabindex="0" role="group" aria-label="Costs"><table class="plain costs"><thead><tr><th>${by === "day" ? "Day (UTC)" : `${by[0].toUpperCase()}${by.slice(1)}`}</th><th class="number">Runs</th><th class="number">Calls</th><th class="number">Input</th><th class="number">Output</th><th class="number">Tokens</th><th><span class="visually-hidden">Share</span></th><th class="number">Cost</th><th class="number">Without a price</th></tr></thead><tbody>${rows.map((/** @type {any} */ row) => html`<tr key=${row.key}><td>${row.key ? html`<a href=${url(runsOf(by, row.key))}>${visible(row.key)}</a>` : html`<span class="dim">none</span>`}</td><td class="number">${count(row.runs)}</td><td class="number">${count(row.calls)}</td><td class="number">${count(row.usage.input_tokens)}</td><td class="number">${count(row.usage.output_tokens)}</td><td class="number">${count(row.usage.total_tokens)}</td><td class="share"><a href=${row.key ? url(runsOf(by, row.key)) : undefined} tabindex="-1" aria-hidden="true"><i style=${{ width: `${(100 * row.usage.total_tokens) / most}%` }}></i></a></td><td class="number">${known(row)}</td><td class="number">${row.unpriced ? html`<span class="warn">${count(row.unpriced)}</span>` : "0"}</td></tr>`)}</tbody></table></div><p class="below-table"><button type="button" onClick=${() => save(by, rows)}>Download as CSV</button></p>`;
    }}<//></section>`;
}
