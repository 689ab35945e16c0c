// Messages, evidence, costs, and the log as it is.
import { useMemo, useState } from "../vendor/preact.js";
import { html, Act, Empty, Failed, Icon, Id, Loaded, Long, Skeleton, useLoaded } from "../parts.js";
import { address, at, get } from "../api.js";
import { url } from "../route.js";
import { count, money, plural, pretty, size, span, visible } from "../text.js";
import { useEvents } from "./events.js";
import { Messages } from "./messages.js";

/** @typedef {{feed: import("./feed.js").Feed, detail: any}} Props */

/** The conversation as the next model call would have it. @param {Props} props */
export function MessagesTab({ feed, detail }) {
  const loaded = useLoaded(`${feed.id}@${detail.row.revision}`, (signal) => get(`/runs${at(feed.id)}/messages`, signal));
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Messages"><${Loaded} of=${loaded}>${(/** @type {any} */ data) => {
    const { messages } = data;
    return messages.length ? html`<p class="dim">As the next model call would have them.</p><${Messages} messages=${messages} />` : html`<${Empty} title="No messages yet" />`;
  }}<//></div>`;
}

/** @param {Props} props */
export function EvidenceTab({ feed, detail }) {
  const loaded = useLoaded(`${feed.id}@${detail.row.revision}`, (signal) => get(`/runs${at(feed.id)}/evidence`, signal));
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Evidence"><${Loaded} of=${loaded}>${(/** @type {any} */ data) => {
    const calls = data.filter((/** @type {any} */ call) => call.evidence.length || call.postcondition.length || call.files.length);
    if (!calls.length) return html`<${Empty} title="No evidence"><p>Tools with postconditions, probes or artifacts leave some.</p><//>`;
    return calls.map((/** @type {any} */ call) => html`<article class="call" key=${call.tool_call_id ?? call.revision}><header class="row"><b class="mono">${visible(call.tool_name)}</b><span class="dim">${visible(call.tool_call_id ?? "")}</span></header>${
      [...call.evidence, ...call.files].length ? html`<table class="plain"><thead><tr><th>Artifact</th><th>Type</th><th class="number">Size</th></tr></thead><tbody>${[...call.evidence, ...call.files].map((/** @type {any} */ each) => html`<tr key=${each.id ?? each.artifact}><td><a class="mono" href=${address(`/artifacts${at(each.id ?? each.artifact)}`)} download>${visible(each.name ?? each.id ?? each.artifact)}</a></td><td>${visible(each.media_type)}</td><td class="number">${size(each.size_bytes ?? each.bytes ?? 0)}</td></tr>`)}</tbody></table>` : null
    }${call.postcondition.length ? html`<${Long} value=${call.postcondition} label="Postcondition" />` : null}</article>`);
  }}<//></div>`;
}

/** Usage by step and attempt, as the log has it. @param {Props} props */
export function CostsTab({ feed, detail }) {
  const { events, error, done, reload } = useEvents(feed);
  const rows = useMemo(() => events.filter((event) => event.usage && event.type !== "step"), [events]);
  if (error) return html`<${Failed} problem=${error} retry=${reload} />`;
  if (!rows.length) return done ? html`<${Empty} title="No model was called" />` : html`<${Skeleton} />`;
  const all = detail.totals ?? detail.row;
  return html`<div class="scroll scroll-x" tabindex="0" role="group" aria-label="Costs"><table class="plain"><thead><tr><th>Step</th><th>Model</th><th>For</th><th class="number">Input</th><th class="number">Cached</th><th class="number">Output</th><th class="number">Reasoning</th><th class="number">Cost</th></tr></thead><tbody>${rows.map(
    (event) => html`<tr key=${event.revision}><td>${event.step ?? "–"}</td><td>${visible(event.model ?? "")}</td><td>${visible(event.type.replaceAll("_", " "))}${event.source === "estimate" ? html` <span class="tag">estimate</span>` : null}</td><td class="number">${count(event.usage.input_tokens)}</td><td class="number">${count(event.usage.cached_input_tokens)}</td><td class="number">${count(event.usage.output_tokens)}</td><td class="number">${count(event.usage.reasoning_tokens)}</td><td class="number">${event.cost_usd == null ? html`<span class="dim">unknown</span>` : money(event.cost_usd)}</td></tr>`,
  )}</tbody><tfoot><tr><th colspan="3">${plural(all.runs ?? 1, "run")}, all below included</th><td class="number">${count(all.usage.input_tokens)}</td><td class="number">${count(all.usage.cached_input_tokens)}</td><td class="number">${count(all.usage.output_tokens)}</td><td class="number">${count(all.usage.reasoning_tokens)}</td><td class="number">${money(all.cost_usd)}</td></tr></tfoot></table></div>`;
}

/** @param {Props} props */
export function RawTab({ feed, detail }) {
  const { events, error, done, reload } = useEvents(feed);
  const [found, set] = useState(/** @type {any} */ (null));
  const [shown, show] = useState(200);
  if (error) return html`<${Failed} problem=${error} retry=${reload} />`;
  const verify = async () => {
    set({ busy: true });
    try {
      // To tell of the last event, the server reads all commits up to its own, and verifies each of them.
      const last = events[events.length - 1].revision, { commit } = await get(`/runs${at(feed.id)}/events/${last}`);
      set({ text: `${plural(events.length, "event")} up to the commit ${commit.digest.slice(0, 12)}…: every checksum and every link of the chain holds.`, good: true });
    } catch (problem) {
      set({ text: /** @type {Error} */ (problem).message, good: false });
    }
  };
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Raw"><div class="row bar"><${Act} act=${verify} disabled=${!done || found?.busy}>Verify chain<//><a class="button" href=${address(`/runs${at(feed.id)}/export`)} download=${`${feed.id}.jsonl`}>Export</a>${found?.text ? html`<span class=${found.good ? "good" : "bad"} role="status"><${Icon} name=${found.good ? "completed" : "error"} /> ${visible(found.text)}</span>` : null}</div>
    <details><summary>The run, as the list has it</summary><${Long} value=${pretty(detail.row)} label="Row" /></details><details><summary>Configuration</summary><${Long} value=${pretty(detail.config)} label="Configuration" /></details>
    ${events.slice(0, shown).map((event) => html`<details key=${event.revision} open=${events.length < 4}><summary><span class="mono">${event.revision}</span> ${event.type}</summary><${Long} value=${pretty(event)} label=${`Event ${event.revision}`} /></details>`)}${events.length > shown ? html`<button type="button" onClick=${() => show(shown + 1000)}>Show more (${count(events.length - shown)} left)</button>` : null}</div>`;
}
