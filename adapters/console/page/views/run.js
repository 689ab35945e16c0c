// One run: its head with why it waits and what can be done, and its tabs.
import { useEffect, useMemo, useState } from "../vendor/preact.js";
import { html, Act, Copy, Facts, Failed, Icon, Id, Skeleton, Status, Time, Took, copied, note } from "../parts.js";
import { at, query } from "../api.js";
import { place, tune, url, go } from "../route.js";
import { count, money, plural, span, visible } from "../text.js";
import { useKeys } from "../keys.js";
import { mayAct, title } from "../shell.js";
import { actions } from "../palette.js";
import { Feed } from "../run/feed.js";
import { useActions, Actions } from "../run/actions.js";
import { Family } from "../run/family.js";
import { Why } from "../run/why.js";
import { TimelineTab } from "../run/timeline-tab.js";
import { StepsTab } from "../run/steps-tab.js";
import { EventsTab } from "../run/events-tab.js";
import { MessagesTab, EvidenceTab, CostsTab, RawTab } from "../run/other-tabs.js";
import { Instant } from "../run/instant.js";

const TABS = /** @type {[string, string, any][]} */ ([
  ["timeline", "Timeline", TimelineTab],
  ["steps", "Steps", StepsTab],
  ["events", "Events", EventsTab],
  ["messages", "Messages", MessagesTab],
  ["evidence", "Evidence", EvidenceTab],
  ["costs", "Costs", CostsTab],
  ["raw", "Raw", RawTab],
]);

/** @param {{run: string}} props */
export default function Run({ run }) {
  const feed = useMemo(() => new Feed(run), [run]);
  useEffect(() => {
    feed.open();
    title.value = run;
    return () => feed.close();
  }, [feed]);
  const detail = feed.detail.value;
  const chosen = place.value.query.get("tab") ?? "timeline";
  const [, name, Tab] = TABS.find(([id]) => id === chosen) ?? TABS[0];
  const todo = useActions(feed);
  useEffect(() => {
    actions.current = todo.all.map((each) => ({ name: `${each.name} this run`, act: () => each.act() }));
    return () => {
      actions.current = [];
    };
  });
  const over = place.value.query.get("then") === "compare" && detail?.row.ended_at && detail.row.forked_from;
  useEffect(() => {
    if (over) go(`/compare${query({ a: over, b: run })}`, { replace: true });
  }, [over]);
  const show = (/** @type {string} */ tab) => tune({ tab: tab === "timeline" ? null : tab });
  const revision = Number(place.value.query.get("rev")) || null;
  const head = detail?.row.revision ?? 0;
  const step = (/** @type {number} */ by) => {
    const next = (revision ?? head) + by;
    if (next >= 1 && next <= head) tune({ rev: String(next) });
    else if (next > head) tune({ rev: null });
  };
  /** @type {Record<string, (() => void)|undefined>} */
  const keys = {
    y: () => copied(run),
    "[": () => step(-1),
    "]": () => step(1),
    ".": () => document.querySelector(/** @type {any} */ (".run-actions button"))?.focus(),
    Escape: () => (revision ? tune({ rev: null, panel: null }) : go("/runs")),
  };
  TABS.forEach(([id], n) => {
    keys[String(n + 1)] = () => show(id);
  });
  useKeys(keys);
  if (feed.error.value) return html`<section class="view"><h1>Run <code>${visible(run)}</code></h1><${Failed} problem=${feed.error.value} title=${feed.error.value.status === 404 ? "There is no such run" : undefined} retry=${() => feed.open()} /></section>`;
  const damage = feed.damage.value ? html`<${Failed} problem=${feed.damage.value} />` : null;
  if (!detail) return html`<section class="view"><h1 class="mono">${visible(run)}</h1>${damage ?? html`<${Skeleton} />`}</section>`;
  return html`<section class="view run">
    <${Head} feed=${feed} detail=${detail} todo=${todo} />
    ${damage}
    <div class="tabs" role="tablist" aria-label="Parts of the run" onKeyDown=${(/** @type {KeyboardEvent} */ e) => onTabKey(e, chosen, show)}>${TABS.map(([id, label], n) => html`<button type="button" key=${id} role="tab" id=${`tab-${id}`} aria-selected=${label === name} aria-controls="tab-panel" tabindex=${label === name ? 0 : -1} onClick=${() => show(id)}>${label}<kbd aria-hidden="true">${n + 1}</kbd></button>`)}</div>
    <div class="split"><div class="tab-panel" id="tab-panel" role="tabpanel" aria-labelledby=${`tab-${chosen}`}><${Tab} feed=${feed} detail=${detail} /></div>${revision ? html`<${Instant} feed=${feed} revision=${revision} head=${head} move=${step} />` : null}</div>
  </section>`;
}

/** @param {KeyboardEvent} event @param {string} chosen @param {(tab: string) => void} show */
function onTabKey(event, chosen, show) {
  const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if (!by) return;
  event.preventDefault();
  const next = TABS[(TABS.findIndex(([id]) => id === chosen) + by + TABS.length) % TABS.length][0];
  show(next);
  document.getElementById(`tab-${next}`)?.focus();
}

/** @param {{feed: Feed, detail: any, todo: any}} props */
function Head({ feed, detail, todo }) {
  const { row, totals } = detail;
  const all = totals ?? { runs: 1, steps: row.steps, usage: row.usage, cost_usd: row.cost_usd };
  const [more, show] = useState(false);
  return html`<header class="run-head"><div class="row"><h1><${Id} id=${row.run_id} /></h1><${Status} status=${row.status} reason=${row.status === "paused" ? row.reason : row.error_type} /><span class="grow"></span><${Actions} todo=${todo} /></div>
    <${Why} feed=${feed} detail=${detail} />
    <${Facts} of=${[
      ["Agent", visible(row.agent)],
      ["Started", html`<${Time} at=${row.submitted_at} />`],
      ["Took", html`<${Took} from=${row.submitted_at} to=${row.ended_at} />`],
      ["Steps", count(all.steps)],
      ["Tokens", count(all.usage.total_tokens)],
      ["Cost", html`${money(all.cost_usd)}${all.runs > 1 ? html` <span class="dim">of ${plural(all.runs, "run")}</span>` : null}`],
      ["Executor", row.executor],
      ["Worker", row.worker ? html`${visible(row.worker)}${row.takeovers ? html` <span class="tag warn">${plural(row.takeovers, "takeover")}</span>` : null}` : null],
      ["Session", row.session ? html`<a href=${url(`/sessions${at(row.session)}`)}>${visible(row.session)}</a>` : null],
      ["User", row.user ? visible(row.user) : null],
      ["Started by", row.trigger ? visible([row.trigger.kind, row.trigger.name].filter(Boolean).join(" ")) : null],
      ["Attempt at", row.job_id && row.job_id !== row.run_id ? html`<${Id} id=${row.job_id} href=${`/runs?f=${encodeURIComponent(`job:${row.job_id}`)}`} most=${15} copy=${false} />` : null],
      ["Parent", row.parent ? html`<${Id} id=${row.parent} href=${`/runs${at(row.parent)}`} />` : null],
      ["Fork of", row.forked_from ? html`<${Id} id=${row.forked_from} href=${`/runs${at(row.forked_from)}?rev=${row.forked_at}`} /> at ${row.forked_at} · <a href=${url(`/compare?a=${encodeURIComponent(row.forked_from)}&b=${encodeURIComponent(row.run_id)}`)}>compare</a>` : null],
      ["Forks", detail.forks?.length ? html`${detail.forks.slice(0, 5).map((/** @type {string} */ id) => html`<${Id} key=${id} id=${id} href=${`/runs${at(id)}`} most=${15} copy=${false} /> `)}${detail.forks.length > 5 ? html`<a href=${url(`/runs?f=fork:${encodeURIComponent(row.run_id)}`)}>all ${count(detail.forks.length)}</a>` : null}` : null],
      ["Children", detail.children?.length ? html`<a href=${url(`/runs?f=parent:${encodeURIComponent(row.run_id)}`)}>${plural(detail.children.length, "run")}</a>` : null],
      ["Trace", detail.trace_id ? html`<${Id} id=${detail.trace_id} most=${15} />` : null],
    ]} />
    <p class="texts"><span class="dim">Input</span> <span class="clamped">${visible(detail.input)}</span>${detail.output ? html`<span class="dim">Output</span> <span class="clamped">${visible(detail.output)}</span>` : null}${detail.error && row.status === "error" ? html`<span class="dim">Error</span> <span class="clamped bad">${visible(detail.error)}</span>` : null}</p>
    ${row.parent || row.forked_from || detail.forks?.length || detail.children?.length ? html`<${Family} id=${row.run_id} turn=${(detail.forks?.length ?? 0) + (detail.children?.length ?? 0)} />` : null}
  </header>`;
}
