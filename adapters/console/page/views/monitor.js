// The monitor: the stored events judged by the ordering rules, and how far the projections are behind.
import { useEffect, useState } from "../vendor/preact.js";
import { html, Act, Icon, Id, Loaded, Long, Time, useLoaded } from "../parts.js";
import { at, get, query } from "../api.js";
import { place, tune, url } from "../route.js";
import { count, plural, pretty, visible } from "../text.js";
import { title, violations } from "../shell.js";
import { follow } from "../stream.js";

export const RULES = Array.from({ length: 13 }, (_, n) => `R${n + 1}`);

export default function Monitor() {
  const run = place.value.query.get("run") ?? "";
  const found = useLoaded(`monitor ${run}`, (signal) => get(`/monitor${query({ run })}`, signal));
  const projections = useLoaded("projections", (signal) => get("/projections", signal));
  useEffect(() => {
    title.value = "Monitor";
  }, []);
  useEffect(() => {
    if (found.data && !run) violations.value = found.data.violations.length;
  }, [found.data]);
  useEffect(() => {
    let known = 0;
    return follow("monitor", null, ({ event, data }) => {
      if (event === "violation" && data.count > known) found.reload();
      known = Math.max(known, data.count ?? 0);
    });
  }, []);
  return html`<section class="view scroll"><header class="view-head"><h1>Monitor</h1>${run ? html`<span class="token">run ${visible(run)}</span><button type="button" onClick=${() => tune({ run: null })}>All runs</button>` : null}<span class="grow"></span><button type="button" onClick=${found.reload}>Judge again</button></header>
    <${Loaded} of=${found}>${(/** @type {any} */ data) => html`<p class=${data.violations.length ? "bad" : "good"}><${Icon} name=${data.violations.length ? "error" : "completed"} /> ${plural(data.events, "event")} in ${plural(data.commits, "commit")} ${data.since ? html`since <${Time} at=${data.since} /> ` : ""}judged: ${data.violations.length ? plural(data.violations.length, "violation") : "every rule holds"}.</p>
      <ul class="tiles">${RULES.map((rule) => {
        const broken = data.violations.filter((/** @type {any} */ each) => each.rule === rule).length;
        return html`<li key=${rule} class=${broken ? "bad" : "good"}><b>${rule}</b> <${Icon} name=${broken ? "error" : "completed"} /> <span>${broken ? count(broken) : "holds"}</span></li>`;
      })}</ul>
      ${data.violations.length ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Violations"><table class="plain"><thead><tr><th>Rule</th><th>Run</th><th>Revisions</th><th>What is wrong</th></tr></thead><tbody>${data.violations.slice(0, 500).map((/** @type {any} */ each, /** @type {number} */ n) => html`<tr key=${n}><td>${each.rule}</td><td><${Id} id=${each.run} href=${`/runs${at(each.run)}?rev=${each.revisions[1]}`} copy=${false} /></td><td>${each.revisions.filter(Boolean).map((/** @type {number} */ revision) => html`<a key=${revision} href=${url(`/runs${at(each.run)}?rev=${revision}`)}>${revision}</a> `)}</td><td class="wide">${visible(each.message)}<${Both} run=${each.run} revisions=${each.revisions.filter(Boolean)} /></td></tr>`)}</tbody></table></div>` : null}`}<//>
    <h2>Projections</h2><${Loaded} of=${projections} lines=${2}>${(/** @type {any[]} */ rows) => html`<table class="plain"><thead><tr><th>Name</th><th class="number">Version</th><th class="number">Behind the log</th></tr></thead><tbody>${rows.map((row) => html`<tr key=${row.name}><td>${visible(row.name)}</td><td class="number">${row.version}</td><td class="number">${plural(row.lag, "commit")}</td></tr>`)}</tbody></table>`}<//></section>`;
}

/** The events of a violation side by side, once they are asked for. @param {{run: string, revisions: number[]}} props */
function Both({ run, revisions }) {
  const [open, show] = useState(false);
  const events = useLoaded(open ? `${run} ${revisions}` : null, (signal) => Promise.all(revisions.map((revision) => get(`/runs${at(run)}/events/${revision}`, signal))));
  return html`<details onToggle=${(/** @type {any} */ e) => show(e.target.open)}><summary>${revisions.length > 1 ? "Both events" : "The event"}</summary>${open ? html`<${Loaded} of=${events} lines=${3}>${(/** @type {any[]} */ found) => html`<div class="both">${found.map(({ event }) => html`<section key=${event.revision}><p><b>${event.revision} ${visible(event.type)}</b></p><${Long} value=${pretty(event)} label=${`Event ${event.revision}`} /></section>`)}</div>`}<//>` : null}</details>`;
}
