// The list of runs: filters, exact counts, any number of rows, and changes as they come.
import { signal, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { html, Icon, Status, Time, Took, Id, Skeleton, Failed, Damaged, Empty, Command, Act, announce, confirmed, copied, narrow, note } from "../parts.js";
import { Grid } from "../grid.js";
import { at, get, post, query, newKey } from "../api.js";
import { follow } from "../stream.js";
import { place, tune, go, url } from "../route.js";
import { count, money, oneLine, plural, visible } from "../text.js";
import { preferences, prefer } from "../preferences.js";
import { useKeys } from "../keys.js";
import { me, mayAct, title } from "../shell.js";
import { actions } from "../palette.js";
import { NAMES, parameters, tokens, withFilter, written } from "../filters.js";

const STATUSES = ["queued", "running", "paused", "completed", "error", "cancelled"];
const PAGE = 100;
/** So many rows are kept of a list that grows by itself; those below are read again when they are scrolled to. */
const KEPT = 1000;
/** A reason comes and goes by itself, too: a run that nobody serves is told as such after some seconds. */
const AGAIN_MS = 5000;
const HEIGHTS = { normal: 46, compact: 30 };
/** Below so many pixels, two columns share one where rows have two lines; rows of one line have a reason less to show. */
const SHARED = 1300, CROWDED = 950;

/** The total of counts; a text if one is not exact. @param {Record<string, number|string>} counts */
function total(counts) {
  let sum = 0, more = false;
  for (const value of Object.values(counts)) {
    sum += Number.parseInt(String(value), 10);
    more ||= typeof value === "string";
  }
  return more ? `${sum}+` : sum;
}

/** The rows of a filter by pages, with the changes that the stream brings. @param {string} filter */
function useRuns(filter) {
  const given = useMemo(() => parameters(filter), [filter]);
  const key = JSON.stringify(given);
  const [list, set] = useState(/** @type {any} */ ({ key: "", rows: [], next: null, counts: null, all: null, error: null, fresh: [] }));
  const [turn, again] = useState(0);
  const state = useRef(list);
  const onTop = useRef(true);
  const change = (/** @type {any} */ part) => {
    state.current = { ...state.current, ...part };
    set(state.current);
  };
  useEffect(() => {
    const control = new AbortController();
    let told = false, end = () => {};
    const begin = (/** @type {string} */ cursor) => {
      end = follow(`runs${query(given)}`, cursor, ({ event, data }) => {
        if (event === "resync") again((n) => n + 1);
        if (event !== "list") return;
        told = true;
        merge(data);
      });
    };
    const read = async () => {
      const page = await get(`/runs${query({ ...given, limit: PAGE })}`, control.signal);
      change({ key, rows: page.rows, next: page.next, damaged: page.damaged, error: null, fresh: [], asked: null });
      begin(page.cursor); // what has changed since then comes, too
      const counts = await get(`/runs/counts${query({ ...given, status: null })}`, control.signal);
      if (!told) change({ counts });
    };
    read().catch((error) => error.name === "AbortError" || change({ key, error }));
    return () => {
      control.abort();
      end();
    };
  }, [key, turn]);
  function merge(/** @type {any} */ data) {
    const { rows, fresh } = state.current;
    const gone = new Set(data.removes ?? []);
    const known = new Map(rows.map((/** @type {any} */ row, /** @type {number} */ n) => [row.run_id, n]));
    let changed = gone.size ? rows.filter((/** @type {any} */ row) => !gone.has(row.run_id)) : rows.slice();
    if (gone.size) changed.forEach((/** @type {any} */ row, /** @type {number} */ n) => known.set(row.run_id, n));
    /** @type {any[]} */
    const added = [];
    for (const row of data.upserts ?? []) {
      const n = known.get(row.run_id);
      if (n !== undefined && changed[n]?.run_id === row.run_id) changed[n] = row;
      else if (!changed.length || row.submitted_at >= changed[changed.length - 1].submitted_at || !state.current.next) added.push(row);
    }
    let waiting = fresh.filter((/** @type {any} */ row) => !gone.has(row.run_id) && !added.some((each) => each.run_id === row.run_id)).concat(added);
    const focused = document.activeElement?.getAttribute("role") === "grid";
    let { next } = state.current;
    if (waiting.length && onTop.current && !focused) {
      changed = sorted([...waiting, ...changed]);
      waiting = [];
      if (added.length) announce(plural(added.length, "new run"));
      if (changed.length > KEPT) {
        changed = changed.slice(0, KEPT);
        next = changed[KEPT - 1];
      }
    }
    // Of more than that only the number is told, and to show them reads the list again.
    change({ rows: changed, next, fresh: sorted(waiting).slice(0, KEPT), counts: data.counts ?? state.current.counts });
  }
  return {
    ...list,
    stale: list.key !== key,
    given,
    onTop,
    reload: () => again((n) => n + 1),
    show: () => (state.current.fresh.length < KEPT ? change({ rows: sorted([...state.current.fresh, ...state.current.rows]), fresh: [] }) : again((n) => n + 1)),
    more: async () => {
      const { next, asked } = state.current;
      if (!next || asked === next || state.current.key !== key) return;
      change({ asked: next });
      // Behind a row that was the last to be kept: times are exclusive, and a run with the same time is there already.
      const behind = typeof next === "string" ? { before: next } : { to: next.submitted_at + 1e-6 };
      const page = await get(`/runs${query({ ...given, limit: 200, ...behind })}`).catch(() => null);
      if (!page || state.current.asked !== next) {
        change({ asked: null });
        return;
      }
      const known = new Set(state.current.rows.map((/** @type {any} */ row) => row.run_id));
      change({ rows: [...state.current.rows, ...page.rows.filter((/** @type {any} */ row) => !known.has(row.run_id))], next: page.next, asked: null });
    },
  };
}

/** @param {any[]} rows */
function sorted(rows) {
  return rows.sort((a, b) => b.submitted_at - a.submitted_at || (a.run_id < b.run_id ? 1 : -1));
}

/** Why open runs wait, by run. */
const reasons = signal(/** @type {Map<string, string>} */ (new Map()));

/** Read why runs wait whenever the list has changed and shows one that may, at most once a second, and from time to time. @param {any[]} rows */
function useReasons(rows) {
  const open = rows.some((row) => !row.ended_at);
  const asked = useRef(0);
  useEffect(() => {
    if (!open) return undefined;
    const read = async () => {
      asked.current = Date.now();
      const queue = await get("/queue").catch(() => null);
      if (queue) reasons.value = new Map(queue.waiting.map((/** @type {any} */ { row, why }) => [row.run_id, why.sentence]));
    };
    const soon = setTimeout(read, Math.max(0, asked.current + 1000 - Date.now()));
    const again = setInterval(() => document.hidden || read(), AGAIN_MS);
    return () => {
      clearTimeout(soon);
      clearInterval(again);
    };
  }, [rows, open]);
}

/** Why a run waits, or why it failed, in words. @param {any} row */
function whyOf(row) {
  if (row.damage) return row.damage.detail;
  if (row.ended_at) return row.error;
  return reasons.value.get(row.run_id) ?? "";
}

/** The rows as a tree: children and forks below the run that they are of, as far as it is there. @param {any[]} rows */
function treeOf(rows) {
  const known = new Set(rows.map((row) => row.run_id));
  /** @type {Map<string, any[]>} */
  const below = new Map();
  const tops = [];
  for (const row of rows) {
    const above = row.parent ?? row.forked_from;
    if (above && above !== row.run_id && known.has(above)) below.set(above, [...(below.get(above) ?? []), row]);
    else tops.push(row);
  }
  /** @type {any[]} */
  const found = [];
  const add = (/** @type {any} */ row, /** @type {number} */ depth) => {
    found.push({ ...row, depth });
    for (const each of (below.get(row.run_id) ?? []).slice().reverse()) add(each, depth + 1);
  };
  for (const row of tops) add(row, 0);
  return found;
}

/** @type {import("../grid.js").Column[]} */
const COLUMNS = [
  { id: "status", label: "Status", width: "10.4rem", cell: (/** @type {any} */ row) => row.damage ? html`<span class="status is-error"><${Icon} name="warning" /><span>damaged</span></span>` : html`<${Status} status=${row.status} reason=${row.status === "paused" ? row.reason : row.status === "error" ? row.error_type : ""} />` },
  { id: "run", label: "Run", width: "9.2rem", cell: (/** @type {any} */ row) => html`${row.depth ? html`<span class="dim" aria-hidden="true">${"· ".repeat(Math.min(row.depth, 6))}</span><span class="visually-hidden">level ${row.depth} </span>` : null}<a class="mono" tabindex="-1" href=${url(`/runs${at(row.run_id)}`)} title=${visible(row.run_id)}>${shortened(row.run_id)}</a>${row.forked_from ? html` <span class="tag" title=${`Fork of ${row.forked_from}`}>fork</span>` : null}${row.parent ? html` <span class="tag" title=${`Child of ${row.parent}`}>child</span>` : null}` },
  { id: "agent", label: "Agent", width: "minmax(5rem, .7fr)", narrow: false, cell: (/** @type {any} */ row) => visible(row.agent) },
  { id: "input", label: "Input, and why it waits", width: "minmax(9rem, 3fr)", cell: (/** @type {any} */ row) => {
    const why = whyOf(row);
    return html`<span class="line" title=${visible(row.input)}>${oneLine(row.input, 200) || html`<span class="dim">${row.buried ? row.buried : "no input"}</span>`}</span>${why ? html`<span class=${`line why ${row.status === "error" || row.damage ? "bad" : ""}`} title=${visible(why)}>${oneLine(why, 200)}</span>` : null}`;
  } },
  { id: "meta", label: "Agent, started, cost", width: "0", wide: false, cell: (/** @type {any} */ row) => html`${visible(row.agent)} · <${Time} at=${row.submitted_at} />${row.family.cost_usd === null ? "" : ` · ${money(row.family.cost_usd)}`}` },
  { id: "started", label: "Started", width: "7.2rem", from: SHARED, narrow: false, cell: (/** @type {any} */ row) => html`<${Time} at=${row.submitted_at} />` },
  { id: "when", label: "Started, took", width: "7.2rem", below: SHARED, narrow: false, cell: (/** @type {any} */ row) => html`<span class="line"><${Time} at=${row.submitted_at} /></span><span class="line dim"><${Took} from=${row.submitted_at} to=${row.ended_at} /></span>` },
  { id: "took", label: "Took", width: "6.2rem", kind: "number", from: SHARED, cell: (/** @type {any} */ row) => html`<${Took} from=${row.submitted_at} to=${row.ended_at} />` },
  { id: "steps", label: "Steps", width: "3.2rem", kind: "number", from: SHARED, narrow: false, cell: (/** @type {any} */ row) => count(row.family.steps) },
  { id: "tokens", label: "Tokens", width: "4.6rem", kind: "number", from: SHARED, narrow: false, cell: (/** @type {any} */ row) => count(row.family.usage.total_tokens) },
  { id: "usage", label: "Tokens, steps", width: "6.9rem", kind: "number", from: CROWDED, below: SHARED, narrow: false, cell: (/** @type {any} */ row) => html`<span class="line">${count(row.family.usage.total_tokens)}</span><span class="line dim">${plural(row.family.steps, "step")}</span>` },
  { id: "cost", label: "Cost", width: "4.8rem", kind: "number", from: 800, narrow: false, cell: (/** @type {any} */ row) => (row.family.cost_usd === null ? html`<span class="dim" title="The price of a model is not known">unknown</span>` : money(row.family.cost_usd)) },
  { id: "session", label: "Session", width: "minmax(4rem, .6fr)", from: SHARED, narrow: false, cell: sessionOf },
  { id: "worker", label: "Worker", width: "minmax(4rem, .8fr)", from: SHARED, narrow: false, cell: workerOf },
  { id: "where", label: "Session, worker", width: "minmax(8.2rem, 1fr)", from: CROWDED, below: SHARED, narrow: false, cell: (/** @type {any} */ row) => html`<span class="line">${sessionOf(row)}</span>${row.worker ? html`<span class="line dim">${workerOf(row)}</span>` : null}` },
];

/** Where rows have one line, each value has a column of its own, in less room. */
const COMPACT = COLUMNS.filter((column) => !column.below).map((column) => (column.from === SHARED ? { ...column, from: CROWDED } : column));

/** @param {any} row */
function sessionOf(row) {
  return row.session ? html`<a tabindex="-1" href=${url(`/sessions${at(row.session)}`)} title=${visible(row.session)}>${visible(row.session)}</a>` : html`<span class="dim">–</span>`;
}

/** @param {any} row */
function workerOf(row) {
  return html`${row.takeovers ? html`<span class="tag warn" title=${`${plural(row.takeovers, "takeover")}, epoch ${row.epoch}`}>↷${row.takeovers}</span> ` : null}<span title=${visible(row.worker)}>${visible(row.worker) || html`<span class="dim">–</span>`}</span>`;
}

/** @param {string} id */
function shortened(id) {
  return id.length <= 15 ? visible(id) : visible(`${id.slice(0, 6)}…${id.slice(-7)}`);
}

export default function Runs() {
  const filter = place.value.query.get("f") ?? "";
  const asTree = place.value.query.get("tree") === "1";
  const list = useRuns(asTree ? withFilter(withFilter(filter, "children", "yes"), "forks", "yes") : filter);
  const shownRows = useMemo(() => (asTree ? treeOf(list.rows) : list.rows), [asTree, list.rows]);
  useReasons(list.rows);
  reasons.value; // the cells read it
  const [cursor, setCursor] = useState(-1);
  const [chosen, choose] = useState(/** @type {Set<string>} */ (new Set()));
  const field = useRef(/** @type {HTMLInputElement|null} */ (null));
  useEffect(() => {
    title.value = "Runs";
    actions.current = [{ name: "Start a run", act: () => go("/runs?start=1") }];
    return () => {
      actions.current = [];
    };
  }, []);
  useEffect(() => setCursor(-1), [filter]);
  const row = shownRows[cursor];
  useKeys({
    "/": () => field.current?.focus(),
    y: row ? () => copied(row.run_id) : undefined,
    Enter: row ? () => go(`/runs${at(row.run_id)}`) : undefined,
    Escape: chosen.size ? () => choose(new Set()) : undefined,
  });
  const toggle = (/** @type {any} */ each) => {
    const next = new Set(chosen);
    if (!next.delete(each.run_id)) next.add(each.run_id);
    choose(next);
  };
  const heading = html`<header class="view-head"><h1>Runs</h1><${Filter} filter=${filter} field=${field} /><${Views} filter=${filter} />${mayAct() && me.value.agents?.length ? html`<${Start} />` : null}</header>`;
  const counts = list.counts ?? {}, columns = preferences.value.density === "compact" ? COMPACT : COLUMNS;
  const status = tokens(filter).find((token) => token.name === "status")?.value ?? "";
  const chips = html`<div class="chips" role="group" aria-label="By status"><button type="button" aria-pressed=${!status} onClick=${() => tune({ f: withFilter(filter, "status", null) })}>all <b>${list.counts ? count(total(counts)) : "–"}</b></button>${STATUSES.map((name) => html`<button type="button" key=${name} class=${`is-${name}`} aria-pressed=${status === name} onClick=${() => tune({ f: withFilter(filter, "status", status === name ? null : name) })}><${Icon} name=${name} filled=${name === "running"} />${name} <b>${list.counts ? count(counts[name] ?? 0) : "–"}</b></button>`)}<button type="button" aria-pressed=${asTree} title="Children below their parents, forks below their origins" onClick=${() => tune({ tree: asTree ? null : "1" })}><${Icon} name="child" />tree</button></div>`;
  let body;
  if (list.error) body = html`<${Failed} problem=${list.error} retry=${list.reload} />`;
  else if (!list.key) body = html`<${Skeleton} lines=${12} />`;
  else if (!list.rows.length && !list.fresh.length && !list.stale) body = html`<${None} filter=${filter} />`;
  else
    body = html`<div class=${`fill loaded${list.stale ? " stale" : ""}`}>
      ${list.fresh.length ? html`<button type="button" class="fresh" onClick=${list.show}>${list.fresh.length < KEPT ? plural(list.fresh.length, "new run") : `${count(KEPT)}+ new runs`}, show</button>` : null}
      <${Grid} label="Runs" columns=${mayAct() && !narrow.value ? [{ id: "choose", label: html`<span class="visually-hidden">Chosen</span>`, width: "1.6rem", cell: (/** @type {any} */ each) => html`<input type="checkbox" tabindex="-1" aria-label=${`Choose ${each.run_id}`} checked=${chosen.has(each.run_id)} onChange=${() => toggle(each)} />` }, ...columns] : columns}
        rows=${shownRows} rowKey=${(/** @type {any} */ each) => each.run_id} total=${list.next ? -2 : list.rows.length} cursor=${cursor} onCursor=${setCursor} onOpen=${(/** @type {any} */ each) => go(`/runs${at(each.run_id)}`)}
        onEnd=${list.more} chosen=${chosen} onChoose=${mayAct() ? toggle : undefined} height=${HEIGHTS[preferences.value.density]} narrowHeight=${96} onTop=${(/** @type {boolean} */ top) => (list.onTop.current = top)} /></div>`;
  return html`<section class="view runs">${heading}${chips}${chosen.size ? html`<${Batch} chosen=${[...chosen]} done=${() => choose(new Set())} />` : null}<${Damaged} rows=${list.damaged} />${body}</section>`;
}

/** @param {{filter: string, field: any}} props */
function Filter({ filter, field }) {
  const [text, type] = useState(filter);
  useEffect(() => type(filter), [filter]);
  const given = tokens(filter);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    tune({ f: written(tokens(text)) }, { replace: false });
  };
  const known = Object.keys(NAMES).map((name) => `${name}:`);
  return html`<form class="filter" role="search" onSubmit=${submit}><label class="search"><${Icon} name="search" /><span class="visually-hidden">Filter runs</span><input ref=${field} type="search" list="filter-names" spellcheck="false" autocomplete="off" placeholder='agent:refunds error:rate_limit since:2h "Order 17"' value=${text} onInput=${(/** @type {any} */ e) => { type(e.target.value); if (e.target.value === "") tune({ f: null }); }} onKeyDown=${(/** @type {KeyboardEvent} */ e) => e.key === "Escape" && field.current?.blur()} /></label><datalist id="filter-names">${known.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
    ${given.length ? html`<span class="tokens">${given.map((token, n) => html`<button type="button" key=${n} class="token" title="Remove this filter" onClick=${() => tune({ f: written(given.filter((_, each) => each !== n)) })}>${token.name ? html`<b>${token.name}</b> ` : null}${visible(token.value)} <${Icon} name="close" /></button>`)}</span>` : null}</form>`;
}

/** @param {{filter: string}} props */
function Views({ filter }) {
  const { views } = preferences.value;
  const known = views.find((each) => each.query === filter);
  if (!views.length && !filter) return null;
  return html`<span class="views"><label><span class="visually-hidden">Saved views</span><select value=${known?.name ?? ""} onChange=${(/** @type {any} */ e) => { const found = views.find((each) => each.name === e.target.value); if (found) tune({ f: found.query }, { replace: false }); }}><option value="">${views.length ? "Saved views" : "No saved views"}</option>${views.map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}</select></label>${
    filter && !known ? html`<button type="button" onClick=${() => prefer({ views: [...views.filter((each) => each.name !== filter), { name: filter, query: filter }] })}>Save view</button>` : null
  }${known ? html`<button type="button" onClick=${() => prefer({ views: views.filter((each) => each !== known) })}>Forget view</button>` : null}</span>`;
}

/** @param {{filter: string}} props */
function None({ filter }) {
  const [all, set] = useState(/** @type {number|string|null} */ (null));
  useEffect(() => {
    if (filter) get("/runs/counts?children=0&forks=0").then((counts) => set(total(counts)), () => {});
  }, [filter]);
  if (filter) return html`<${Empty} title=${all === null ? "No run matches" : `None of ${count(all)} ${all === 1 ? "run" : "runs"}`}><p><button type="button" onClick=${() => tune({ f: null })}>Clear the filters</button></p><//>`;
  return html`<${Empty} title="No runs yet"><p>Start a first one; it appears here by itself.</p><${Command} line='foldlog run FILE "…"' /><p class="dim">or two executors and a crash in between:</p><${Command} line="foldlog demo" /><//>`;
}

/** What is done to the chosen runs. @param {{chosen: string[], done: () => void}} props */
function Batch({ chosen, done }) {
  const act = (/** @type {string} */ action, /** @type {string} */ verb) => async () => {
    const sure = await confirmed({ title: `${verb} ${plural(chosen.length, "run")}?`, text: action === "cancel" ? "A cancel cannot be taken back." : "Each is asked for by its own command.", verb, count: chosen.length });
    if (!sure) return;
    const { results } = await post("/batch", { action, ids: chosen }, { key: newKey() });
    const failed = results.filter((/** @type {any} */ each) => each.status !== 200);
    if (failed.length) note(`${verb}: ${plural(failed.length, "run")} refused: ${failed[0].detail}`, true);
    else note(`${verb}: ${plural(chosen.length, "run")}`);
    done();
  };
  return html`<div class="batch" role="toolbar" aria-label="The chosen runs"><b>${plural(chosen.length, "run")} chosen</b>
    <${Act} act=${act("pause", "Pause")}>Pause<//><${Act} act=${act("resume", "Resume")}>Resume<//><${Act} act=${act("retry", "Retry")}>Retry<//><${Act} class="danger" act=${act("cancel", "Cancel")}>Cancel<//>
    ${chosen.length === 2 ? html`<a class="button" href=${url(`/compare${query({ a: chosen[0], b: chosen[1] })}`)}>Compare</a>` : null}<button type="button" class="quiet" onClick=${done}>Choose none</button></div>`;
}

function Start() {
  const shown = place.value.query.get("start") === "1";
  const [agent, setAgent] = useState(me.value.agents[0]);
  const [input, setInput] = useState("");
  const [session, setSession] = useState("");
  const key = useMemo(newKey, [shown]);
  if (!shown) return html`<button type="button" class="primary" onClick=${() => tune({ start: "1" })}>Start a run</button>`;
  const start = async () => {
    const { run_id } = await post("/runs", { agent, input, ...(session ? { session } : {}) }, { key });
    go(`/runs${at(run_id)}`);
  };
  return html`<form class="start" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}><label class="field">Agent<select value=${agent} onChange=${(/** @type {any} */ e) => setAgent(e.target.value)}>${me.value.agents.map((/** @type {string} */ name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label><label class="field grow">Input<input autofocus value=${input} onInput=${(/** @type {any} */ e) => setInput(e.target.value)} /></label><label class="field">Session<input value=${session} onInput=${(/** @type {any} */ e) => setSession(e.target.value)} /></label><${Act} type="submit" class="primary" act=${start}>Start<//><button type="button" onClick=${() => tune({ start: null })}>Cancel</button></form>`;
}
