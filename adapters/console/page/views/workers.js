// Workers: the processes that drive runs, and what each one holds.
import { useEffect } from "../vendor/preact.js";
import { html, Command, Empty, Icon, Id, Loaded, Time, useLoaded } from "../parts.js";
import { at, get } from "../api.js";
import { count, span, visible } from "../text.js";
import { title } from "../shell.js";
import { follow } from "../stream.js";

/** A lease is renewed more often than that. */
const SILENT_S = 5;
const SHOWN = 5;

export default function Workers() {
  const workers = useLoaded("workers", (signal) => get("/workers", signal));
  useEffect(() => {
    title.value = "Workers";
    return follow("workers", null, ({ event, data }) => {
      if (event === "list") workers.set(data.whole);
    });
  }, []);
  return html`<section class="view scroll"><h1>Workers</h1><${Loaded} of=${workers}>${(/** @type {any} */ data) => html`${
    data.rows.length
      ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Workers"><table class="plain"><thead><tr><th>Name</th><th>Last sign</th><th>Host</th><th class="number">Process</th><th>Version</th><th>Serves</th><th class="number">In use</th><th>Holds</th><th>Started</th></tr></thead><tbody>${data.rows.map((/** @type {any} */ each) => html`<tr key=${each.worker}><td><b>${visible(each.worker)}</b></td><td>${each.silent_s > SILENT_S ? html`<span class="warn"><${Icon} name="warning" /> silent for ${span(each.silent_s)}</span>` : each.draining ? html`<span class="warn" title="It takes no more runs, and finishes those that it holds"><${Icon} name="paused" /> draining</span>` : html`<span class="good">present</span>`}</td><td>${visible(each.host)}</td><td class="number">${each.pid}</td><td>${visible([each.release, each.build].filter(Boolean).join(" "))}</td><td class="wide">${each.serves.length ? each.serves.map(visible).join(", ") : html`<span class="dim">its own runs</span>`}</td><td class="number">${count(each.drives.length)}${each.concurrency ? ` of ${count(each.concurrency)}` : ""}</td><td><${Runs} of=${each.drives} /></td><td><${Time} at=${each.since} /></td></tr>`)}</tbody></table></div>`
      : html`<${Empty} title="No process drives runs here"><p>Start a worker; it appears here by itself.</p><${Command} line="foldlog worker MODULE:REGISTRY" /><//>`
  }${data.lost.length ? html`<h2>Lost</h2><p class="dim">Gone without a word within the last hour, or with runs that nobody drives.</p><div class="scroll-x" tabindex="0" role="group" aria-label="Lost workers"><table class="plain"><thead><tr><th>Name</th><th>Last sign</th><th>Taken over</th><th>Left</th></tr></thead><tbody>${data.lost.map((/** @type {any} */ each) => html`<tr key=${each.worker}><td><b class="bad"><${Icon} name="error" /> ${visible(each.worker)}</b></td><td><${Time} at=${each.since} /></td><td>${each.taken.slice(0, SHOWN).map((/** @type {any} */ { run_id, takeover }) => html`<div key=${run_id}><${Id} id=${run_id} href=${`/runs${at(run_id)}`} most=${16} copy=${false} /> by ${visible(takeover.by)} after ${span(takeover.silent_s)}</div>`)}${each.taken.length > SHOWN ? `and ${count(each.taken.length - SHOWN)} more` : each.taken.length ? "" : "–"}</td><td>${each.left.length ? html`<${Runs} of=${each.left.map((/** @type {string} */ run_id) => ({ run_id }))} />` : "none"}</td></tr>`)}</tbody></table></div>` : null}`}<//></section>`;
}

/** @param {{of: {run_id: string, lease_age_s?: number}[]}} props */
function Runs({ of }) {
  return html`${of.slice(0, SHOWN).map(({ run_id, lease_age_s }) => html`<div key=${run_id}><${Id} id=${run_id} href=${`/runs${at(run_id)}`} most=${16} copy=${false} />${lease_age_s === undefined ? "" : html` <span class="dim">lease ${span(lease_age_s)} old</span>`}</div>`)}${of.length > SHOWN ? `and ${count(of.length - SHOWN)} more` : ""}`;
}
