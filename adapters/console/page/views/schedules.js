// Schedules: when each starts its next run, and what came of its last times.
import { useEffect } from "../vendor/preact.js";
import { html, Act, Command, Empty, Id, Loaded, Time, note, useLoaded } from "../parts.js";
import { at, get, newKey, patch, post } from "../api.js";
import { inZone, moment, plural, visible } from "../text.js";
import { preferences } from "../preferences.js";
import { mayAct, title } from "../shell.js";
import { useRunChanges } from "./queue.js";

/** A time in the zone of its schedule; without one, in that of the page. @param {number} at @param {string|undefined} zone */
function zoned(at, zone) {
  try {
    if (zone) return inZone(at, zone);
  } catch {
    // A zone that this browser does not know.
  }
  return moment(at, preferences.value.utc);
}

export default function Schedules() {
  const schedules = useLoaded("schedules", (signal) => get("/schedules", signal));
  useEffect(() => {
    title.value = "Schedules";
  }, []);
  useRunChanges(schedules.reload);
  const change = (/** @type {() => Promise<any>} */ act, /** @type {string} */ told) => async () => {
    await act();
    note(told);
    schedules.reload();
  };
  return html`<section class="view scroll"><h1>Schedules</h1><${Loaded} of=${schedules}>${(/** @type {any[]} */ rows) =>
    rows.length
      ? html`<div class="steps">${rows.map((row) => {
          const { name, ...of } = row.schedule, path = `/schedules${at(name)}`;
          return html`<section class="step" key=${name}><header class="row"><h2>${visible(name)}</h2>${row.paused ? html`<span class="is-paused">paused</span>` : row.next_at ? html`<span>next <${Time} at=${row.next_at} /></span>` : html`<span class="dim">no further time</span>`}<span class="grow"></span>${mayAct() ? html`<${Act} act=${change(() => post(`${path}/trigger`, {}, { key: newKey() }), `${name}: a run is asked for`)}>Run now<//><${Act} act=${change(() => patch(path, { paused: !row.paused }), `${name}: ${row.paused ? "goes on" : "paused"}`)}>${row.paused ? "Resume" : "Pause"}<//>` : null}</header><p class="mono wide">${visible(Object.entries(of).filter(([, value]) => value !== null && value !== "" && typeof value !== "object").map(([key, value]) => `${key} ${value}`).join(", "))}</p>${row.coming.length ? html`<p class="coming"><span class="dim">Next:</span> ${row.coming.map((/** @type {number} */ at) => html`<span key=${at} class="token">${zoned(at, of.tz)}</span> `)}</p>` : null}${
            row.recent?.length ? html`<table class="plain"><thead><tr><th>Due</th><th>What came of it</th><th>Run</th></tr></thead><tbody>${[...row.recent].reverse().slice(0, 5).map((/** @type {any} */ each, /** @type {number} */ n) => html`<tr key=${n}><td><${Time} at=${each.due_at ?? each.at} /></td><td>${visible([each.outcome ?? each.decision ?? "", each.reason ?? each.why ?? ""].filter(Boolean).join(": "))}</td><td>${each.run ?? each.run_id ? html`<${Id} id=${each.run ?? each.run_id} href=${`/runs${at(each.run ?? each.run_id)}`} copy=${false} />` : "–"}</td></tr>`)}</tbody></table>` : html`<p class="dim">It has not started a run yet.</p>`
          }${row.wanted ? html`<p class="dim">${plural(row.wanted, "time")} asked for by hand, not started yet</p>` : null}</section>`;
        })}</div>`
      : html`<${Empty} title="No schedules"><p>Write [schedules.NAME] into foldlog.toml, then:</p><${Command} line="foldlog schedules apply" /><//>`}<//></section>`;
}
