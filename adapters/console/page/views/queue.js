// The queue: who waits for what, by agent, and the lanes, slots, breakers and budgets that hold them.
import { useEffect, useRef } from "../vendor/preact.js";
import { html, Act, Empty, Id, Loaded, Status, Time, confirmed, note, useLoaded } from "../parts.js";
import { at, get, newKey, post } from "../api.js";
import { follow } from "../stream.js";
import { url } from "../route.js";
import { count, money, plural, visible } from "../text.js";
import { mayAct, title } from "../shell.js";

const PERIOD_MS = 1000;
const BUDGETS_PERIOD_MS = 5000;
const BUDGETS_MOST = 200;

/** Read again when runs change, at most once in a period. @param {() => void} reload @param {number} [period] */
export function useRunChanges(reload, period = PERIOD_MS) {
  useEffect(() => {
    /** @type {any} */
    let soon;
    const end = follow("runs?children=1", null, ({ event }) => {
      if (event !== "list" && event !== "resync") return;
      soon ??= setTimeout(() => {
        soon = undefined;
        reload();
      }, period);
    });
    return () => {
      clearTimeout(soon);
      end();
    };
  }, [reload, period]);
}

export default function Queue() {
  const queue = useLoaded("queue", async (signal) => {
    const [waiting, lanes, slots, breakers] = await Promise.all(["/queue", "/lanes", "/slots", "/breakers"].map((path) => get(path, signal)));
    return { ...waiting, lanes: lanes.rows, slots: slots.rows, breakers: breakers.rows };
  });
  const latest = useRef(/** @type {any} */ (null));
  latest.current = queue.data;
  useEffect(() => {
    title.value = "Queue";
    return follow("lanes", null, ({ event, data }) => {
      if (event === "list" && latest.current) queue.set({ ...latest.current, ...data.whole });
    });
  }, []);
  useRunChanges(queue.reload);
  const cancel = (/** @type {string} */ run) => async () => {
    if (!(await confirmed({ title: `Cancel run ${run}?`, text: "A cancel cannot be taken back.", verb: "Cancel the run" }))) return;
    const { found } = await post(`/runs${at(run)}/cancel`, {}, { key: newKey() });
    note(found === "cancelled" ? "Cancelled" : `It was ${found.replace("_", " ")}`);
    queue.reload();
  };
  return html`<section class="view scroll"><h1>Queue</h1><${Loaded} of=${queue}>${(/** @type {any} */ data) => {
    return html`<div class="parts"><section><h2>${data.waiting.length ? `${plural(data.waiting.length, "run")} ${data.waiting.length === 1 ? "waits" : "wait"}` : "Nothing waits."}</h2>${
      data.waiting.length ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Waiting runs"><table class="plain"><thead><tr><th>Run</th><th>Why</th><th>Agent</th><th>Status</th><th>Since</th><th><span class="visually-hidden">Actions</span></th></tr></thead><tbody>${data.waiting.map((/** @type {any} */ { row, why }) => html`<tr key=${row.run_id}><td><${Id} id=${row.run_id} href=${`/runs${at(row.run_id)}`} most=${16} copy=${false} /></td><td class="wide">${visible(why.sentence)}</td><td>${visible(row.agent)}</td><td><${Status} status=${row.status} /></td><td><${Time} at=${row.updated_at} /></td><td class="does">${why.action?.approval_id ? html`<a class="button" href=${url(`/approvals${at(why.action.approval_id)}`)}>Decide</a> ` : null}${mayAct() ? html`<${Act} class="danger" act=${cancel(row.run_id)}>Cancel<//>` : null}</td></tr>`)}</tbody></table></div>` : null
    }</section>
    <section><h2>By agent</h2>${data.agents.length ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Agents"><table class="plain"><thead><tr><th>Agent</th><th class="number">Queued</th><th class="number">Driven</th><th class="number">Parked</th><th class="number">Wake-ups</th><th>Workers</th></tr></thead><tbody>${data.agents.map((/** @type {any} */ of) => html`<tr key=${of.agent}><td><a href=${url(`/runs?f=agent:${encodeURIComponent(of.agent)}`)}>${visible(of.agent)}</a></td><td class="number">${count(of.queued)}</td><td class="number">${count(of.driven)}</td><td class="number">${count(of.parked)}</td><td class="number">${count(of.wakeups)}</td><td>${of.workers.length ? of.workers.map(visible).join(", ") : html`<span class="warn">none serves it</span>`}</td></tr>`)}</tbody></table></div>` : html`<p class="dim">No run is open.</p>`}</section>
    <section><h2>Lanes of sessions</h2>${data.lanes.length ? html`<ul class="plain-list">${data.lanes.map((/** @type {any} */ lane) => html`<li key=${lane.lane}><b>${visible(lane.lane)}</b>: <${Run} id=${lane.runs[0].run_id} /> ${visible(lane.runs[0].status)} since <${Time} at=${lane.runs[0].since} />${lane.runs.length > 1 ? html`; after it ${lane.runs.slice(1, 10).map((/** @type {any} */ each) => html`<${Run} key=${each.run_id} id=${each.run_id} /> `)}${lane.runs.length > 10 ? `and ${count(lane.runs.length - 10)} more` : ""}` : ""}</li>`)}</ul>` : html`<p class="dim">No lane is in use.</p>`}</section>
    <section><h2>Slots</h2>${data.slots.length ? html`<ul class="plain-list">${data.slots.map((/** @type {any} */ each) => html`<li key=${each.name}><b>${visible(each.name)}</b>${each.places ? ` (${plural(each.places, "place")})` : ""} held by ${each.holders.map((/** @type {any} */ holder) => html`<${Run} key=${holder.run_id + holder.call} id=${holder.run_id} /> `)}${each.waiting.length ? html`; waiting in order: ${each.waiting.slice(0, 10).map((/** @type {any} */ waiter) => html`<${Run} key=${waiter.run_id + waiter.call} id=${waiter.run_id} /> `)}${each.waiting.length > 10 ? `and ${count(each.waiting.length - 10)} more` : ""}` : ""}</li>`)}</ul>` : html`<p class="dim">No slot is held.</p>`}</section>
    <section><h2>Circuit breakers</h2>${data.breakers.length ? html`<table class="plain"><thead><tr><th>Name</th><th>State</th><th class="number">Failures</th><th>Until</th></tr></thead><tbody>${data.breakers.map((/** @type {any} */ each) => html`<tr key=${each.name}><td>${visible(each.name)}</td><td class=${each.state === "closed" ? "good" : "bad"}>${each.state.replace("_", " ")}</td><td class="number">${count(each.failures)}</td><td>${each.state === "closed" ? "–" : html`<${Time} at=${each.until} />`}</td></tr>`)}</tbody></table>` : html`<p class="dim">None has counted a failure.</p>`}</section>
    <${Budgets} /></div>`;
  }}<//></section>`;
}

/** What is spent of the budgets of the namespace: read less often than the rest, for each user may have one. */
function Budgets() {
  const budgets = useLoaded("budgets", async (signal) => await get(`/budgets?limit=${BUDGETS_MOST}`, signal));
  useRunChanges(budgets.reload, BUDGETS_PERIOD_MS);
  return html`<section><h2>Budgets</h2><${Loaded} of=${budgets}>${(/** @type {{rows: any[], next: string | null}} */ { rows, next }) =>
    rows.length ? html`<ul class="plain-list wide" aria-label="Budgets">${rows.map((row) => html`<li key=${`${row.owner} ${row.per} ${row.time_zone} ${row.amount}`}><b>${visible(row.owner)}</b>: ${spent(row)} spent of ${row.amount ? html`${visible(row.amount)}, ${left(row)}` : "an amount that is not known here"}${row.until === null ? " (total)" : html` (${visible(row.per)}, ${visible(row.time_zone)}, until <${Time} at=${row.until} />)`}</li>`)}</ul>${next ? html`<p class="dim">And more: <code>foldlog budgets list</code> has all.</p>` : null}` : html`<p class="dim">None is configured, and nothing is counted.</p>`
  }<//></section>`;
}

/** What is spent of the amounts that are limited, or of both if the amount is not known. @param {any} row */
function spent(row) {
  const dollars = row.left_usd !== null || !row.amount ? [`${row.unpriced ? "at least " : ""}${money(row.cost_usd)}`] : [];
  const tokens = row.left_tokens !== null || !row.amount ? [plural(row.tokens, "token")] : [];
  return [...dollars, ...tokens].join(" and ");
}

/** @param {any} row */
function left(row) {
  const used = Number(row.left_usd ?? 1) <= 0 || row.left_tokens === 0;
  const told = [...(row.left_usd !== null ? [money(row.left_usd)] : []), ...(row.left_tokens !== null ? [plural(row.left_tokens, "token")] : [])].join(" and ");
  return html`<span class=${used ? "bad" : ""}>${used ? "used up" : `${told} left`}</span>`;
}

/** @param {{id: string}} props */
function Run({ id }) {
  return html`<${Id} id=${id} href=${`/runs${at(id)}`} most=${16} copy=${false} />`;
}
