// A run as it was at a revision: the event, the state and what changed in it, the prompt, what was pending.
import { useEffect, useState } from "../vendor/preact.js";
import { html, Act, Copy, Facts, Icon, Loaded, Long, useLoaded } from "../parts.js";
import { at, get } from "../api.js";
import { place, tune } from "../route.js";
import { compact, count, moment, oneLine, plural, pretty, size, visible } from "../text.js";
import { preferences } from "../preferences.js";
import { mayAct } from "../shell.js";
import { Fork } from "./fork.js";
import { Messages } from "./messages.js";

const PANELS = [["event", "Event"], ["state", "State"], ["prompt", "Prompt"], ["pending", "Pending"]];

/** @param {{feed: import("./feed.js").Feed, revision: number, head: number, move: (by: number) => void}} props */
export function Instant({ feed, revision, head, move }) {
  const query = place.value.query, panel = query.get("panel") ?? "event", run = query.get("of") ?? feed.id;
  const [forking, fork] = useState(false);
  const own = run === feed.id;
  const shown = PANELS.find(([id]) => id === panel) ?? PANELS[0];
  return html`<aside class="instant" aria-label=${`Revision ${revision}`}><header class="row"><h2>Revision ${revision}</h2>${own ? html`<span class="dim">of ${count(head)}</span>` : html`<span class="dim mono">${visible(run)}</span>`}<span class="grow"></span><button type="button" class="quiet square" aria-label="Close" onClick=${() => tune({ rev: null, panel: null, of: null })}><${Icon} name="close" /></button></header>
    ${own ? html`<div class="row slider"><button type="button" class="square" aria-label="One revision back" title="[" onClick=${() => move(-1)}>‹</button><input type="range" min="1" max=${head} value=${revision} aria-label="Revision" onInput=${(/** @type {any} */ e) => tune({ rev: e.target.value })} /><button type="button" class="square" aria-label="One revision forward" title="]" onClick=${() => move(1)}>›</button><button type="button" onClick=${() => tune({ rev: null, panel: null })}>live</button></div>` : null}
    <div class="row bar"><span class="chips" role="group" aria-label="Panel">${PANELS.map(([id, name]) => html`<button type="button" key=${id} aria-pressed=${id === shown[0]} onClick=${() => tune({ panel: id === "event" ? null : id })}>${name}</button>`)}</span><span class="grow"></span>${own && mayAct() && !feed.detail.value.row.parent ? html`<button type="button" onClick=${() => fork(true)}>Fork here</button>` : null}</div>
    <div class="instant-body" tabindex="0" role="group" aria-label=${shown[1]}>${shown[0] === "event" ? html`<${Whole} run=${run} revision=${revision} />` : shown[0] === "prompt" ? html`<${Prompt} feed=${feed} run=${run} revision=${revision} />` : html`<${State} run=${run} revision=${revision} panel=${shown[0]} />`}</div>
    ${forking ? html`<${Fork} feed=${feed} revision=${revision} close=${() => fork(false)} />` : null}</aside>`;
}

/** One event with its commit. @param {{run: string, revision: number}} props */
function Whole({ run, revision }) {
  const loaded = useLoaded(`${run}/${revision}`, (signal) => get(`/runs${at(run)}/events/${revision}`, signal));
  return html`<${Loaded} of=${loaded} lines=${4}>${(/** @type {any} */ { event, commit }) => html`<h3><span class="mono">${visible(event.type)}</span> <${Copy} text=${pretty(event)} what="event" /></h3><p class="dim">${moment(event.at, preferences.value.utc)}</p><${Long} value=${pretty(Object.fromEntries(Object.entries(event).filter(([name]) => !["type", "run_id", "root_id", "agent", "agent_path", "cursor", "at", "revision"].includes(name))))} label="Event" />
    <h3>Its commit</h3><${Facts} of=${[
      ["Events", `${commit.events} from revision ${commit.revision}`],
      ["Position", count(commit.position)],
      ["Epoch", commit.epoch],
      ["Size", size(commit.bytes)],
      ["Stored", moment(commit.at, preferences.value.utc)],
      ["Append", html`<code>${visible(commit.append)}</code>`],
      ["Digest", html`<code>${commit.digest}</code>`],
      ["Follows", html`<code>${commit.prev || "nothing"}</code>`],
    ]} /><p class="good"><${Icon} name="completed" /> Checksum and chain hold up to here: the server verifies them whenever it reads.</p>`}<//>`;
}

/** State and what was pending, with what changed since the revision before. @param {{run: string, revision: number, panel: string}} props */
function State({ run, revision, panel }) {
  const loaded = useLoaded(`${run}/${revision}`, (signal) => get(`/runs${at(run)}/at/${revision}`, signal));
  const before = useLoaded(panel === "state" && revision > 1 ? `${run}/${revision - 1}..` : null, (signal) => get(`/runs${at(run)}/at/${revision - 1}..${revision}`, signal));
  return html`<${Loaded} of=${loaded}>${(/** @type {any} */ data) => {
    if (panel === "pending")
      return html`<h3>What was pending</h3>${data.pending.length ? data.pending.map((/** @type {any} */ { effect, ...of }, /** @type {number} */ n) => html`<article class="call" key=${n}><b>${visible(effect)}</b><${Long} value=${pretty(of)} label=${effect} /></article>`) : html`<p class="dim">Nothing.</p>`}<h3>Budgets</h3>${data.budgets.length ? html`<${Long} value=${pretty(data.budgets)} label="Budgets" />` : html`<p class="dim">None is set.</p>`}`;
    const patch = before.data?.patch ?? [];
    return html`<h3>Changed by this revision</h3>${Array.isArray(patch) && patch.length ? html`<ul class="patch">${patch.map((/** @type {any} */ each, /** @type {number} */ n) => html`<li key=${n} class=${`op-${each.op}`}><b>${each.op}</b> <code>${visible(each.path)}</code> ${"value" in each ? html`<span class="mono">${oneLine(compact(each.value), 300)}</span>` : null}</li>`)}</ul>` : html`<p class="dim">${before.data ? "Nothing but its revision." : "…"}</p>`}<h3>State</h3><${Tree} value=${data.state} name="state" open />`;
  }}<//>`;
}

/** @param {{value: any, name: string, open?: boolean}} props */
function Tree({ value, name, open = false }) {
  const [shown, show] = useState(open);
  if (value === null || typeof value !== "object") return html`<div class="leaf"><span class="dim">${visible(name)}</span> <span class="mono">${oneLine(JSON.stringify(value) ?? "", 600)}</span></div>`;
  const entries = Object.entries(value);
  return html`<details class="tree" open=${shown} onToggle=${(/** @type {any} */ e) => show(e.target.open)}><summary>${visible(name)} <span class="dim">${Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`}</span></summary>${shown ? entries.slice(0, 500).map(([each, of]) => html`<${Tree} key=${each} name=${each} value=${of} />`) : null}</details>`;
}

/** The prompt as it was sent, proven by its digest. @param {{feed: any, run: string, revision: number}} props */
function Prompt({ feed, run, revision }) {
  const asked = feed.rows.filter((/** @type {any} */ row) => row.type === "model_requested" && (row.run_id || feed.id) === run).map((/** @type {any} */ row) => row.revision);
  const at_ = asked.includes(revision) ? revision : asked.filter((/** @type {number} */ each) => each <= revision).pop() ?? asked[0] ?? revision;
  const loaded = useLoaded(asked.length ? `${run}/${at_}` : null, (signal) => get(`/runs${at(run)}/prompts/${at_}`, signal));
  const n = asked.indexOf(at_), earlier = n > 0 ? asked[n - 1] : null;
  const before = useLoaded(earlier ? `${run}/${earlier}` : null, (signal) => get(`/runs${at(run)}/prompts/${earlier}`, signal));
  const known = earlier && before.data && !before.stale ? before.data : null;
  return html`<div class="row bar">${asked.length ? html`<button type="button" class="square" aria-label="Prompt before" disabled=${n <= 0} onClick=${() => tune({ rev: String(asked[n - 1]) })}>‹</button><span>prompt ${n + 1} of ${asked.length}</span><button type="button" class="square" aria-label="Prompt after" disabled=${n < 0 || n >= asked.length - 1} onClick=${() => tune({ rev: String(asked[n + 1]) })}>›</button>` : null}</div>
    ${feed.complete.value && !asked.length ? html`<p class="dim">It has called no model.</p>` : null}<${Loaded} of=${loaded}>${(/** @type {any} */ prompt) => html`<p class=${prompt.proven ? "proof good" : "proof bad"}><${Icon} name=${prompt.proven ? "completed" : "error"} /> <b>${prompt.proven ? "Proven" : "Differs"}</b> <span>${prompt.proven ? "rebuilt from the log, and its digest is the one that was stored when it was sent." : "what was rebuilt from the log has another digest than what was sent."}</span></p>
      <${Facts} of=${[["Model", visible(prompt.model)], ["Attempt", prompt.attempt], ["Step", prompt.step], ["For", prompt.phase || null], ["Digest", html`<code>${prompt.digest}</code>`], prompt.proven ? ["", null] : ["Rebuilt", html`<code>${prompt.rebuilt}</code>`]]} />
      <${Curl} prompt=${prompt} />
      ${known ? html`<${Since} prompt=${prompt} before=${known} revision=${earlier} />` : null}
      <h3>${plural(prompt.messages.length, "message")}</h3><${Messages} messages=${prompt.messages} tokens=${prompt.message_tokens} known=${known && new Set(known.messages.map((/** @type {any} */ each) => JSON.stringify(each)))} />
      <h3>${plural(prompt.tools?.length ?? 0, "tool")}</h3>${(prompt.tools ?? []).map((/** @type {any} */ tool) => html`<details key=${tool.name}><summary class="mono">${visible(tool.name)}</summary><p>${visible(tool.description)}</p><${Long} value=${pretty(tool.parameters)} label="Parameters" /></details>`)}
      ${prompt.output_schema ? html`<h3>Output</h3><${Long} value=${pretty(prompt.output_schema)} label="Schema of the output" />` : null}
      <h3>Parameters</h3><${Long} value=${pretty(prompt.parameters ?? {})} label="Parameters" />`}<//>`;
}

/** What differs from the prompt before. @param {{prompt: any, before: any, revision: number|null}} props */
function Since({ prompt, before, revision }) {
  const texts = (/** @type {any} */ of) => of.messages.map((/** @type {any} */ each) => JSON.stringify(each));
  const now = new Set(texts(prompt)), then = new Set(texts(before));
  const added = prompt.messages.filter((/** @type {any} */ each) => !then.has(JSON.stringify(each))).length;
  const gone = before.messages.filter((/** @type {any} */ each) => !now.has(JSON.stringify(each)));
  const others = ["model", "tools", "parameters", "output_schema"].filter((name) => JSON.stringify(prompt[name]) !== JSON.stringify(before[name]));
  return html`<h3>Since the prompt before, at ${revision}</h3><p>${plural(added, "new message")}${gone.length ? `, ${plural(gone.length, "message")} gone` : ""}${others.length ? `; other: ${others.map((name) => name.replace("_", " ")).join(", ")}` : ""}</p>${gone.length ? html`<details><summary>${plural(gone.length, "message")} gone</summary><${Messages} messages=${gone} /></details>` : null}`;
}

/** @param {{prompt: any}} props */
function Curl({ prompt }) {
  const model = prompt.model.includes(":") ? prompt.model.slice(prompt.model.indexOf(":") + 1) : prompt.model;
  const messages = prompt.messages.map((/** @type {any} */ message) => ({
    role: message.role,
    content: message.content ?? "",
    ...(message.tool_call_id ? { tool_call_id: message.tool_call_id } : {}),
    ...(message.tool_calls?.length ? { tool_calls: message.tool_calls.map((/** @type {any} */ call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: compact(call.arguments) } })) } : {}),
  }));
  const tools = (prompt.tools ?? []).map((/** @type {any} */ tool) => ({ type: "function", function: { name: tool.name, description: tool.description, parameters: tool.parameters } }));
  const body = JSON.stringify({ model, messages, ...(tools.length ? { tools } : {}), ...prompt.parameters });
  const line = `curl "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" -d '${body.replaceAll("'", "'\\''")}'`;
  return html`<p><${Copy} text=${line} what="the request as curl, without a key" label="Copy as curl" /></p>`;
}
