// What can be done to a run. Each is a command; its button shows what the log says about it, not what was hoped for.
import { useMemo, useState } from "../vendor/preact.js";
import { html, Act, Command, Dialog, confirmed, note } from "../parts.js";
import { address, at, newKey, post, query } from "../api.js";
import { go, tune, place, url } from "../route.js";
import { mayAct } from "../shell.js";
import { Fork } from "./fork.js";
import { Rollback } from "./rollback.js";

/** @param {import("./feed.js").Feed} feed */
export function useActions(feed) {
  const [dialog, open] = useState("");
  const detail = feed.detail.value;
  const row = detail?.row;
  const run = async (/** @type {string} */ path, /** @type {any} */ body, /** @type {string} */ told, key = newKey()) => {
    const before = feed.detail.value.row.revision;
    const answer = await post(`/runs${at(feed.id)}/${path}`, body, { key });
    note((await feed.seen(before)) ? told : `${told}: sent, not seen yet`);
    return answer;
  };
  const may = mayAct() && row, over = Boolean(row?.ended_at);
  const all = !may
    ? []
    : [
        !over && row.status === "paused" && { name: "Resume", act: () => run("resume", {}, "Resumed") },
        !over && row.status !== "paused" && { name: "Pause", act: () => run("pause", {}, "Pause requested") },
        !over && { name: "Message", act: async () => open("message") },
        !row.parent && { name: "Fork", act: async () => open("fork") },
        over && !row.parent && row.steps > 0 && { name: "Roll back", act: async () => open("rollback") },
        over && !row.parent && {
          name: "Retry",
          act: async () => {
            const { run_id } = await post(`/runs${at(feed.id)}/retry`, {}, { key: newKey() });
            go(`/runs${at(run_id)}`);
          },
        },
        !over && row.executor === "local" && detail.owner === null && { name: "Drive here", act: () => run("drive", {}, "Driven by this server") },
        !over && {
          name: "Cancel",
          kind: "danger",
          act: async () => {
            const sure = await confirmed({ title: `Cancel run ${feed.id}?`, text: "It and all runs below it end. A cancel cannot be taken back.", verb: "Cancel the run" });
            if (!sure) return;
            const before = feed.detail.value.row.revision;
            const { found } = await post(`/runs${at(feed.id)}/cancel`, {}, { key: newKey() });
            if (found !== "cancelled") note(`It was ${found.replace("already_", "already ")}`);
            else note((await feed.seen(before)) ? "Cancelled" : "Cancel: sent, not seen yet");
          },
        },
      ].filter(Boolean);
  return { all: /** @type {any[]} */ (all), dialog, open, feed, run };
}

/** @param {{todo: any}} props */
export function Actions({ todo }) {
  const { feed } = todo;
  return html`<div class="row run-actions" role="toolbar" aria-label="Actions">${todo.all.map((/** @type {any} */ each) => html`<${Act} key=${each.name} class=${each.kind ?? ""} act=${each.act}>${each.name}<//>`)}<a class="button" href=${address(`/runs${at(feed.id)}/export`)} download=${`${feed.id}.jsonl`}>Export</a><a class="button" href=${url(`/compare${query({ a: feed.id })}`)}>Compare</a><button type="button" onClick=${() => todo.open("cli")}>CLI</button></div>
    ${todo.dialog === "message" ? html`<${Message} todo=${todo} />` : null}${todo.dialog === "cli" ? html`<${Commands} id=${feed.id} close=${() => todo.open("")} />` : null}${
      todo.dialog === "fork" ? html`<${Fork} feed=${feed} revision=${Number(place.value.query.get("rev")) || feed.detail.value.row.revision} close=${() => todo.open("")} />` : null
    }${todo.dialog === "rollback" ? html`<${Rollback} feed=${feed} close=${() => todo.open("")} />` : null}`;
}

/** @param {{todo: any}} props */
function Message({ todo }) {
  const [content, type] = useState("");
  const key = useMemo(newKey, [content]); // sent again after an error, it is the same message
  const send = async () => {
    await todo.run("messages", { content }, "Queued for the next step", key);
    todo.open("");
  };
  return html`<${Dialog} title="A message for its next step" onClose=${() => todo.open("")}><form onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}><label class="field">Message<textarea autofocus value=${content} onInput=${(/** @type {any} */ e) => type(e.target.value)} onKeyDown=${(/** @type {KeyboardEvent} */ e) => e.key === "Enter" && (e.ctrlKey || e.metaKey) && content && send()}></textarea></label><p class="row end"><${Act} type="submit" class="primary" disabled=${!content} act=${send}>Send<//></p></form><//>`;
}

/** @param {{id: string, close: () => void}} props */
function Commands({ id, close }) {
  return html`<${Dialog} title="The same in the terminal" onClose=${close}>${[`foldlog runs show ${id}`, `foldlog events ${id}`, `foldlog watch ${id}`, `foldlog cancel ${id}`, `foldlog fork ${id} --at REV`, `foldlog replay ${id}`].map((line) => html`<${Command} key=${line} line=${line} />`)}<//>`;
}
