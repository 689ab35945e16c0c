// Workers: the processes that drive runs, and what each one holds.
import { useEffect } from "../vendor/preact.js";
import { html, Command, Empty, Id, Loaded, Time, useLoaded } from "../parts.js";
import { at, get } from "../api.js";
import { count, visible } from "../text.js";
import { title } from "../shell.js";
import { useRunChanges } from "./queue.js";

export default function Workers() {
  const workers = useLoaded("workers", (signal) => get("/workers", signal));
  useEffect(() => {
    title.value = "Workers";
    const again = setInterval(() => document.hidden || workers.reload(), 5000);
    return () => clearInterval(again);
  }, []);
  useRunChanges(workers.reload);
  return html`<section class="view scroll"><h1>Workers</h1><${Loaded} of=${workers}>${(/** @type {any} */ data) =>
    data.rows.length
      ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Workers"><table class="plain"><thead><tr><th>Name</th><th>Host</th><th class="number">Process</th><th>Version</th><th>Serves</th><th class="number">In use</th><th>Holds</th><th>Started</th></tr></thead><tbody>${data.rows.map((/** @type {any} */ { present, runs }) => html`<tr key=${present.worker}><td><b>${visible(present.worker)}</b></td><td>${visible(present.host ?? "")}</td><td class="number">${present.pid ?? ""}</td><td>${visible([present.release, present.build].filter(Boolean).join(" "))}</td><td class="wide">${present.serves?.length ? present.serves.map(visible).join(", ") : html`<span class="dim">its own runs</span>`}</td><td class="number">${count(runs.length)}${present.concurrency ? ` of ${count(present.concurrency)}` : ""}</td><td>${runs.slice(0, 5).map((/** @type {string} */ run) => html`<${Id} key=${run} id=${run} href=${`/runs${at(run)}`} most=${16} copy=${false} /> `)}${runs.length > 5 ? `and ${runs.length - 5} more` : ""}</td><td><${Time} at=${present.since} /></td></tr>`)}</tbody></table></div>`
      : html`<${Empty} title="No process drives runs here"><p>Start a worker; it appears here by itself.</p><${Command} line="foldlog worker MODULE:REGISTRY" /><//>`}<//></section>`;
}
