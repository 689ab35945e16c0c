// A run step by step: what was asked, what the model wrote, what the tools did, and with what evidence.
import { useMemo, useState } from "../vendor/preact.js";
import { html, Empty, Failed, Icon, Long, Skeleton, Status } from "../parts.js";
import { address, at } from "../api.js";
import { tune, url } from "../route.js";
import { count, money, oneLine, pretty, size, span, visible } from "../text.js";
import { useEvents } from "./events.js";

/** The blocks of a run: one a step, with its events. @param {any[]} events */
function blocks(events) {
  /** @type {Map<number, any>} */
  const steps = new Map();
  for (const event of events) {
    const n = event.step ?? null;
    if (n === null) continue;
    const block = steps.get(n) ?? { step: n, from: event.at, to: null, prompts: [], texts: [], calls: new Map(), usage: [] };
    steps.set(n, block);
    switch (event.type) {
      case "step":
        if (event.status === "completed") block.to = event.at;
        break;
      case "model_requested":
        block.prompts.push({ ...event, failed: null });
        break;
      case "model_failed": {
        const last = block.prompts[block.prompts.length - 1];
        if (last) last.failed = event;
        break;
      }
      case "usage":
        block.usage.push(event);
        break;
      case "text":
      case "reasoning":
      case "file":
        block.texts.push(event);
        break;
      default:
        if (event.tool_call_id) gather(block, event);
    }
  }
  return [...steps.values()];
}

/** @param {any} block @param {any} event */
function gather(block, event) {
  const call = block.calls.get(event.tool_call_id) ?? { id: event.tool_call_id, name: event.tool_name, call: null, result: null, failures: [], approvals: [], progress: null, evidence: [] };
  block.calls.set(event.tool_call_id, call);
  if (event.type === "tool_call") Object.assign(call, { call: event, name: event.tool_name });
  else if (event.type === "tool_result") call.result = event;
  else if (event.type === "tool_attempt_failed") call.failures.push(event);
  else if (event.type === "mcp_progress") call.progress = event;
  else if (event.type === "approval_requested") call.approvals.push({ asked: event, told: null });
  else if (event.type === "approval_resolved") {
    const open = call.approvals.find((/** @type {any} */ each) => each.asked.approval_id === event.approval_id);
    if (open) open.told = event;
  }
}

/** @param {{feed: import("./feed.js").Feed, detail: any}} props */
export function StepsTab({ feed }) {
  const { events, error, done, reload } = useEvents(feed);
  feed.turn.value;
  const all = useMemo(() => blocks(events), [events]);
  if (error) return html`<${Failed} problem=${error} retry=${reload} />`;
  if (!events.length) return done ? html`<${Empty} title="No step yet" />` : html`<${Skeleton} />`;
  if (!all.length) return html`<${Empty} title="No step yet"><p>The run is submitted; its first step begins when it is claimed.</p><//>`;
  const drafts = [...feed.drafts.values()];
  return html`<div class="steps scroll" tabindex="0" role="group" aria-label="Steps">${all.map((block) => html`<${Block} key=${block.step} block=${block} drafts=${drafts.filter((draft) => draft.step === block.step)} />`)}</div>`;
}

/** @param {{block: any, drafts: any[]}} props */
function Block({ block, drafts }) {
  const usage = block.usage[block.usage.length - 1];
  return html`<section class="step"><header class="row"><h2>Step ${block.step}</h2><span class="dim">${block.to ? span(block.to - block.from) : "under way"}</span>${usage ? html`<span class="dim">${visible(usage.model)} · ${count(usage.usage.input_tokens)} in, ${count(usage.usage.output_tokens)} out · ${usage.cost_usd == null ? "cost unknown" : money(usage.cost_usd)}</span>` : null}<span class="grow"></span>${block.prompts.map(
    (/** @type {any} */ each, /** @type {number} */ n) => html`<button type="button" key=${n} onClick=${() => tune({ rev: String(each.revision), panel: "prompt" })}>Prompt${block.prompts.length > 1 ? ` ${n + 1}` : ""}</button>`,
  )}</header>
    ${block.prompts.filter((/** @type {any} */ each) => each.failed).map((/** @type {any} */ { failed }) => html`<p class="bad" key=${failed.revision}><${Icon} name="error" /> Attempt ${failed.attempt} failed, ${visible(failed.error_type)}: ${oneLine(failed.error)}</p>`)}
    ${block.texts.map((/** @type {any} */ event) => (event.type === "reasoning" ? html`<details key=${event.revision}><summary>Reasoning</summary><${Long} value=${event.text} class="reasoning" label="Reasoning" /></details>` : event.type === "file" ? html`<p key=${event.revision}><a href=${address(`/artifacts${at(event.artifact)}`)} download>${visible(event.name || event.media_type)}</a> <span class="dim">${size(event.bytes)}</span></p>` : html`<${Long} key=${event.revision} value=${event.text} class="said" label="Text of the model" />`))}
    ${drafts.map((draft) => html`<pre class=${`draft ${draft.channel}`} key=${draft.channel}>${visible(draft.text)}<i class="caret"></i></pre>`)}
    ${[...block.calls.values()].map((call) => html`<${Call} key=${call.id} call=${call} />`)}</section>`;
}

/** @param {{call: any}} props */
function Call({ call }) {
  const { result } = call, metadata = result?.metadata ?? {};
  const approval = call.approvals[call.approvals.length - 1];
  const state = result ? (result.success ? "completed" : "error") : approval && !approval.told ? "paused" : "running";
  const [whole, show] = useState(false);
  return html`<article class="call"><header class="row"><${Status} status=${state} /><b class="mono">${visible(call.name)}</b>${result ? html`<span class="dim">${span(result.duration_ms / 1000)}${metadata.attempt > 1 ? `, attempt ${metadata.attempt}` : ""}</span>` : null}${call.call?.executed_by ? html`<span class="tag">by the provider</span>` : null}<span class="grow"></span>${call.call ? html`<button type="button" class="quiet" onClick=${() => tune({ rev: String((result ?? call.call).revision), panel: "event" })}>rev ${(result ?? call.call).revision}</button>` : null}</header>
    ${call.call ? html`<${Long} value=${call.call.raw_arguments ?? call.call.arguments} class="arguments" label="Arguments" />` : null}
    ${call.failures.map((/** @type {any} */ each) => html`<p class="bad" key=${each.revision}>Attempt ${each.attempt} failed: ${oneLine(each.error)}</p>`)}
    ${!result && call.progress ? html`<p class="row"><progress max=${call.progress.total ?? undefined} value=${call.progress.progress} aria-label="Progress"></progress> ${oneLine(call.progress.message)}</p>` : null}
    ${call.approvals.map((/** @type {any} */ { asked, told }) => html`<p class="ask" key=${asked.approval_id}>${told ? html`${visible(told.decision.replace("_", " "))}${told.by ? ` by ${visible(told.by)}` : ""}${told.note ? `: ${oneLine(told.note)}` : ""}` : html`Waits for a decision. <a href=${url(`/approvals${at(asked.approval_id)}`)}>Decide</a>`}</p>`)}
    ${result ? html`<${Long} value=${result.success ? result.result : result.error} class=${`result${result.success ? "" : " bad"}`} label="Result" />` : null}
    ${Array.isArray(metadata.postcondition) ? html`<ul class="assertions">${metadata.postcondition.map((/** @type {any} */ each, /** @type {number} */ n) => html`<${Assertion} key=${n} of=${each} />`)}</ul>` : null}
    ${metadata && Object.keys(metadata).length ? html`<button type="button" class="quiet" aria-expanded=${whole} onClick=${() => show(!whole)}>Record of the call</button>${whole ? html`<${Long} value=${pretty(metadata)} label="Record" />` : null}` : null}</article>`;
}

/** One assertion of a postcondition: passed, failed with what was seen, or without an answer. @param {{of: any}} props */
export function Assertion({ of }) {
  const status = of.status ?? (of.passed === true || of.success === true ? "passed" : of.error ? "error" : "failed");
  const good = status === "passed" || status === "pass";
  return html`<li class=${good ? "good" : "bad"}><${Icon} name=${good ? "completed" : "error"} /> <b>${visible(status)}</b> ${visible(of.name ?? of.kind ?? of.assertion ?? "")} <span class="mono">${oneLine(JSON.stringify(of), 300)}</span></li>`;
}
