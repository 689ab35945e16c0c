// Why a run waits: one sentence of the server, and the one action that helps.
import { html, Act, Copy, Icon, note } from "../parts.js";
import { at, newKey, post } from "../api.js";
import { url } from "../route.js";
import { visible } from "../text.js";
import { mayAct } from "../shell.js";

/** @param {{feed: any, detail: any}} props */
export function Why({ feed, detail }) {
  const { row, pending } = detail, why = detail.why ?? pending?.why;
  if (!why) return null;
  return html`<p class="why-line"><${Icon} name="paused" /><span>${visible(why.sentence)}</span><${Remedy} action=${why.action} row=${row} feed=${feed} /></p>`;
}

/** @param {{action: any, row: any, feed: any}} props */
function Remedy({ action, row, feed }) {
  if (!action) return null;
  const line = action.command?.length ? `foldlog ${[...action.command, ...(action.names ?? [])].join(" ")}` : "";
  if (action.kind === "decide" && action.approval_id) return html`<a class="button primary" href=${url(`/approvals${at(action.approval_id)}`)}>Decide</a>`;
  if (action.kind === "open" && action.run_id) return html`<a class="button" href=${url(`/runs${at(action.run_id)}`)}>Open it</a>`;
  const does = /** @type {Record<string, [string, string]>} */ ({ resume: ["resume", "Resume"], drive: ["drive", "Drive here"] })[action.kind];
  if (does && mayAct())
    return html`<${Act} act=${async () => {
      const before = row.revision;
      await post(`/runs${at(row.run_id)}/${does[0]}`, {}, { key: newKey() });
      note((await feed.seen(before)) ? `${does[1]}: done` : `${does[1]}: sent, not seen yet`);
    }}>${does[1]}<//>`;
  return line ? html`<${Copy} text=${line} what="the command" label="Copy the command" />` : null;
}
