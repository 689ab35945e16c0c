// Jobs: a run with its retries is one unit of work, in the state of its last attempt.
import { useEffect, useState } from "../vendor/preact.js";
import { html, Command, Empty, Icon, Id, Loaded, Status, Time, useLoaded } from "../parts.js";
import { at, get, query } from "../api.js";
import { place, tune, url } from "../route.js";
import { plural, visible } from "../text.js";
import { title } from "../shell.js";
import { useRunChanges } from "./queue.js";

const STATUSES = /** @type {const} */ (["queued", "running", "paused", "completed", "error", "cancelled"]);
const PAGE = 50, MOST = 500;

export default function Jobs() {
  const status = place.value.query.get("status") ?? "";
  const [limit, setLimit] = useState(PAGE);
  const jobs = useLoaded(`jobs ${status} ${limit}`, (signal) => get(`/jobs${query({ status, limit })}`, signal));
  useRunChanges(jobs.reload);
  useEffect(() => {
    title.value = "Jobs";
  }, []);
  const chip = (/** @type {string} */ of) => () => tune({ status: of && of !== status ? of : null });
  return html`<section class="view scroll"><header class="view-head"><h1>Jobs</h1><span class="chips" role="group" aria-label="By status"><button type="button" aria-pressed=${!status} onClick=${chip("")}>all</button>${STATUSES.map((name) => html`<button type="button" key=${name} class=${`is-${name}`} aria-pressed=${status === name} onClick=${chip(name)}><${Icon} name=${name} filled=${name === "running"} />${name}</button>`)}</span></header>
    <${Loaded} of=${jobs}>${(/** @type {{rows: any[], next: string|null}} */ { rows, next }) =>
    rows.length
      ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Jobs"><table class="plain"><thead><tr><th>Job</th><th>Status</th><th>Agent</th><th>Attempts</th><th>Rolled back by</th><th>Started by</th><th>Submitted</th><th>Changed</th></tr></thead><tbody>${rows.map((job) => html`<tr key=${job.job_id}><td><${Id} id=${job.job_id} href=${`/runs?f=${encodeURIComponent(`job:${job.job_id}`)}`} most=${16} copy=${false} /></td><td><${Status} status=${job.status} /></td><td>${visible(job.agent)}</td><td><${Runs} of=${job.runs} /></td><td><${Runs} of=${job.rollbacks} /></td><td>${job.trigger ? visible([job.trigger.kind, job.trigger.name].filter(Boolean).join(" ")) : ""}</td><td><${Time} at=${job.submitted_at} /></td><td><${Time} at=${job.updated_at} /></td></tr>`)}</tbody></table></div>${next && limit < MOST ? html`<p class="below-table"><button type="button" onClick=${() => setLimit(limit + PAGE)}>Show more</button></p>` : null}${next && limit >= MOST ? html`<p class="dim">The newest ${plural(MOST, "job")}; <code>foldlog jobs list</code> has all.</p>` : null}`
      : status
        ? html`<${Empty} title=${`No job is ${status === "error" ? "in error" : status}`}><p><button type="button" onClick=${chip("")}>All jobs</button></p><//>`
        : html`<${Empty} title="No jobs yet"><p>Each run that is started is a job; its retries are further attempts at it.</p><${Command} line='foldlog run FILE "…"' /><//>`
  }<//></section>`;
}

/** Runs by their number, each with its status. @param {{of: any[]}} props */
function Runs({ of }) {
  if (!of.length) return html`<span class="dim">–</span>`;
  return html`${of.map((run, n) => html`<span class="attempt" key=${run.run_id}><a href=${url(`/runs${at(run.run_id)}`)} title=${visible(run.run_id)} aria-label=${`${n + 1}, ${run.status}`}>${n + 1} <${Icon} name=${run.status} /></a></span> `)}`;
}
