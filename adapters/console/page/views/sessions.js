// Sessions: each as a conversation, its turns linked to their runs.
import { useEffect } from "../vendor/preact.js";
import { html, Act, Empty, Loaded, Long, confirmed, note, useLoaded } from "../parts.js";
import { at, get, newKey, post } from "../api.js";
import { go, place, url } from "../route.js";
import { count, plural, visible } from "../text.js";
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
  const drop = async () => {
    if (!(await confirmed({ title: `Drop the last turn of ${session}?`, text: "Runs to come do not know it any more. Its run and its events stay.", verb: "Drop the turn" }))) return;
    const { dropped } = await post(`/sessions${at(session)}/drop`, { turns: 1 }, { key: newKey() });
    note(`${plural(dropped, "turn")} dropped`);
    turns.reload();
  };
  return html`<section class="view scroll"><header class="view-head"><h1>Session ${visible(session)}</h1><a href=${url(`/runs?f=${encodeURIComponent(`session:"${session}"`)}`)}>its runs</a><span class="grow"></span>${mayAct() && turns.data?.turns.length ? html`<${Act} class="danger" act=${drop}>Drop last turn<//>` : null}</header><${Loaded} of=${turns}>${(/** @type {any} */ data) =>
    data.turns.length
      ? html`<div class="steps">${data.turns.map((/** @type {any} */ turn, /** @type {number} */ n) => html`<section class="step" key=${turn.run_id ?? n}><header class="row"><h2>Turn ${n + 1}</h2>${turn.run_id ? html`<a class="mono" href=${url(`/runs${at(turn.run_id)}`)}>${visible(turn.run_id)}</a>` : null}</header>${turn.messages ? html`<${Messages} messages=${turn.messages} />` : html`<${Long} value=${turn} label=${`Turn ${n + 1}`} />`}</section>`)}</div>`
      : html`<${Empty} title="No turn has ended yet"><p><a href=${url(`/runs?f=${encodeURIComponent(`session:"${session}"`)}`)}>Its runs</a></p><//>`}<//></section>`;
}
