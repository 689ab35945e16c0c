// Sessions: each as a conversation, its turns linked to their runs.
import { useEffect, useState } from "../vendor/preact.js";
import { html, Act, Empty, Id, Loaded, Time, confirmed, note, useLoaded } from "../parts.js";
import { at, get, newKey, post } from "../api.js";
import { go, place, url } from "../route.js";
import { count, oneLine, plural, visible } from "../text.js";
import { mayAct, title } from "../shell.js";
import { Messages } from "../run/messages.js";
import { useRunChanges } from "./queue.js";

/** @param {{session?: string}} props */
export default function Sessions({ session }) {
  useEffect(() => {
    title.value = session ?? "Sessions";
  }, [session]);
  return session ? html`<${One} session=${session} />` : html`<${All} />`;
}

function All() {
  const sessions = useLoaded("sessions", (signal) => get("/sessions", signal));
  useRunChanges(sessions.reload);
  return html`<section class="view scroll"><h1>Sessions</h1><${Loaded} of=${sessions}>${(/** @type {any[]} */ rows) => (rows.length ? html`<table class="plain"><thead><tr><th>Session</th><th class="number">Runs</th></tr></thead><tbody>${rows.map((row) => html`<tr key=${row.session}><td><a href=${url(`/sessions${at(row.session)}`)}>${visible(row.session)}</a></td><td class="number"><a href=${url(`/runs?f=${encodeURIComponent(`session:"${row.session}"`)}`)}>${count(row.runs)}</a></td></tr>`)}</tbody></table>` : html`<${Empty} title="No sessions yet"><p>Runs that name a session run one after the other, and each knows the turns before it.</p><//>`)}<//></section>`;
}

/** @param {{session: string}} props */
function One({ session }) {
  const turns = useLoaded(session, (signal) => get(`/sessions${at(session)}`, signal));
  useRunChanges(turns.reload);
  const lanes = useLoaded(`lanes ${session}`, (signal) => get("/lanes", signal));
  useRunChanges(lanes.reload);
  const [many, choose] = useState(1);
  const drop = async () => {
    const last = /** @type {any} */ (turns.data).turns.slice(-many);
    const text = html`<p>Runs to come do not know them any more. Their runs and events stay.</p><ul>${last.map((/** @type {any} */ turn) => html`<li key=${turn.run}>${oneLine(turn.messages[0]?.content, 120)} <code>${visible(turn.run)}</code></li>`)}</ul>`;
    if (!(await confirmed({ title: `Drop the last ${last.length === 1 ? "turn" : plural(last.length, "turn")} of ${session}?`, text, verb: `Drop ${plural(last.length, "turn")}` }))) return;
    const { dropped } = await post(`/sessions${at(session)}/drop`, { turns: last.length }, { key: newKey() });
    note(`${plural(dropped, "turn")} dropped`);
    turns.reload();
  };
  return html`<section class="view scroll"><header class="view-head"><h1>Session ${visible(session)}</h1><a href=${url(`/runs?f=${encodeURIComponent(`session:"${session}"`)}`)}>its runs</a><span class="grow"></span>${mayAct() && turns.data?.turns.length ? html`<label>Last <input type="number" min="1" max=${turns.data.turns.length} value=${many} onInput=${(/** @type {any} */ e) => choose(Math.max(1, Number(e.target.value) || 1))} /></label><${Act} class="danger" act=${drop}>Drop last turns<//>` : null}</header><${Lane} lanes=${lanes.data?.rows ?? []} session=${session} /><${Loaded} of=${turns}>${(/** @type {any} */ data) =>
    data.turns.length
      ? html`<div class="steps">${data.turns.map((/** @type {any} */ turn, /** @type {number} */ n) => html`<section class="step" key=${turn.run}><header class="row"><h2>Turn ${n + 1}</h2><${Id} id=${turn.run} href=${`/runs${at(turn.run)}`} /></header><${Messages} messages=${turn.messages} /></section>`)}</div>`
      : html`<${Empty} title="No turn has ended yet"><p><a href=${url(`/runs?f=${encodeURIComponent(`session:"${session}"`)}`)}>Its runs</a></p><//>`}<//></section>`;
}

/** Who is at work in the session, and who waits for a turn. @param {{lanes: any[], session: string}} props */
function Lane({ lanes, session }) {
  const own = lanes.filter(({ lane }) => lane === `session:${session}` || (lane.startsWith("lane:") && lane.endsWith(`:${session}`)));
  return html`${own.map(({ lane, runs }) => html`<section key=${lane}><h2>In turn${own.length > 1 ? `, ${visible(lane)}` : ""}</h2><ol class="plain-list">${runs.map((/** @type {any} */ each) => html`<li key=${each.run_id}><${Id} id=${each.run_id} href=${`/runs${at(each.run_id)}`} copy=${false} /> ${visible(each.status)} since <${Time} at=${each.since} /></li>`)}</ol></section>`)}`;
}
