// The events of a run and the runs below it, as a table of any length.
import { useEffect, useMemo, useState } from "../vendor/preact.js";
import { html, Empty, narrow } from "../parts.js";
import { Grid } from "../grid.js";
import { place, tune } from "../route.js";
import { clock, count, moment, oneLine, plural, span, visible } from "../text.js";
import { preferences } from "../preferences.js";
import { useKeys } from "../keys.js";

const LEVELS = /** @type {Record<string, number>} */ ({ key: 0, normal: 1, engine: 2 });

/** The colour of an event, which says nothing that its words do not. @param {any} row */
function styleOf({ type, tone, level }) {
  if (tone === "bad" || tone === "ask") return tone;
  if (type === "status") return tone === "good" ? "good" : "";
  if (/^tool_/.test(type)) return level === "engine" ? "dim" : "tool";
  if (/^(text|reasoning|model_requested)$/.test(type)) return "model";
  return level === "key" ? "" : "dim";
}

/** The text of a row, with the end of a wait. @param {any} row @param {boolean} utc */
function detailOf({ detail, until }, utc) {
  return until ? `${detail} until ${moment(until, utc)}` : detail;
}

/** @param {any} row */
const levelOf = (row) => LEVELS[row.level ?? "normal"] ?? 1;

/** @param {{feed: import("./feed.js").Feed, detail: any, small?: boolean}} props */
export function EventsTab({ feed, detail, small }) {
  feed.turn.value; // redraw with each frame of changes
  const query = place.value.query, level = query.get("level") ?? "normal", words = (query.get("q") ?? "").toLowerCase();
  const [followed, setFollow] = useState(!detail.row.ended_at);
  const rows = useMemo(() => feed.rows.filter((row) => levelOf(row) <= LEVELS[level] && (!words || `${row.type} ${row.what} ${row.detail ?? ""}`.toLowerCase().includes(words))), [feed.rows.length, level, words, feed]);
  const revision = Number(query.get("rev")) || 0, runOf = query.get("of") ?? "";
  const own = feed.id;
  const cursor = revision ? rows.findIndex((row) => row.revision === revision && (row.run_id || own) === (runOf || own)) : -1;
  const [at, setAt] = useState(-1);
  const here = cursor >= 0 ? cursor : at;
  const choose = (/** @type {number} */ n) => {
    setAt(n);
    setFollow(false);
    const row = rows[n];
    if (row?.revision) tune({ rev: String(row.revision), of: row.run_id && row.run_id !== own ? row.run_id : null });
  };
  const openWhole = (/** @type {any} */ row) => tune({ panel: "event", rev: String(row.revision), of: row.run_id && row.run_id !== own ? row.run_id : null });
  useKeys({
    f: () => setFollow(!followed),
    e: here >= 0 ? () => openWhole(rows[here]) : undefined,
    "/": () => document.querySelector(/** @type {any} */ (".events input[type=search]"))?.focus(),
  });
  const { utc } = preferences.value;
  const family = rows.some((row) => row.run_id && row.run_id !== own);
  const columns = useMemo(() => [
    { id: "revision", label: "Rev", width: "3.6rem", kind: "number dim", cell: (/** @type {any} */ row) => row.revision ?? "" },
    { id: "time", label: "Time", width: "7.6rem", cell: (/** @type {any} */ row) => html`<span title=${clock(row.at, !utc, true)}>${clock(row.at, utc, true)}</span>` },
    { id: "gap", label: "Gap", width: "5rem", kind: "number dim", from: 760, narrow: false, cell: (/** @type {any} */ row, /** @type {number} */ n, /** @type {any} */ before) => (before ? `+${span(row.at - before.at)}` : "") },
    { id: "type", label: "Type", width: "10.5rem", cell: (/** @type {any} */ row) => html`<span class=${`event-type s-${styleOf(row) || "plain"}`}>${visible(row.type)}</span>` },
    { id: "step", label: "Step", width: "3.2rem", kind: "dim number", from: 660, cell: (/** @type {any} */ row) => row.step ?? "" },
    ...(family ? [{ id: "agent", label: "Agent", width: "8rem", from: 560, narrow: false, cell: (/** @type {any} */ row) => html`<span class=${row.run_id === own ? "" : "dim"} title=${row.run_id}>${"· ".repeat(row.depth ?? 0)}${visible(row.agent ?? "")}</span>` }] : []),
    { id: "what", label: "What happened", width: "minmax(10rem, 1fr)", cell: (/** @type {any} */ row) => html`<span class="line" title=${oneLine(detailOf(row, utc), 1000)}><b>${oneLine(row.what, 120)}</b> ${oneLine(detailOf(row, utc), 320)}</span>` },
  ], [utc, family, own]);
  return html`<section class="events fill">${
    small ? null : html`<div class="row bar"><span class="chips" role="group" aria-label="Level">${Object.keys(LEVELS).map((name) => html`<button type="button" key=${name} aria-pressed=${name === level} onClick=${() => tune({ level: name === "normal" ? null : name })}>${name}</button>`)}</span><label class="search"><span class="visually-hidden">Filter events</span><input type="search" placeholder="filter" value=${query.get("q") ?? ""} onInput=${(/** @type {any} */ e) => tune({ q: e.target.value })} /></label><span class="dim">${rows.length === feed.rows.length ? plural(rows.length, "event") : `${count(rows.length)} of ${plural(feed.rows.length, "event")}`}</span><span class="grow"></span>${detail.row.ended_at ? null : html`<label class="row"><input type="checkbox" checked=${followed} onChange=${() => setFollow(!followed)} /> follow <kbd>f</kbd></label>`}</div>`
  }${rows.length ? html`<${Grid} label="Events" columns=${columns} rows=${rows} rowKey=${(/** @type {any} */ row, /** @type {number} */ n) => `${row.run_id ?? ""}-${row.revision ?? `n${n}`}`} cursor=${here} onCursor=${choose} onOpen=${openWhole} follow=${followed && !revision} onLeave=${() => setFollow(false)} steady=${columns} height=${26} narrowHeight=${52} />` : html`<${Empty} title=${feed.rows.length ? "No event matches" : "Submitted, not claimed yet"} />`}</section>`;
}
