// A fork: what differs, then the plan, and only then its start.
import { useMemo, useState } from "../vendor/preact.js";
import { html, Act, Dialog, Empty, note } from "../parts.js";
import { at, newKey, post } from "../api.js";
import { go } from "../route.js";
import { oneLine, plural, visible, compact } from "../text.js";

const TOOLS = [["ask", "ask before each that may act"], ["replay", "use recorded results"], ["run", "run them again"]];

/** @param {{feed: import("./feed.js").Feed, revision: number, close: () => void}} props */
export function Fork({ feed, revision, close }) {
  const [asked, ask] = useState({ at: revision, model: "", input: "", tools: "ask", executor: feed.detail.value.row.executor });
  const [plan, set] = useState(/** @type {any} */ (null));
  const key = useMemo(newKey, [plan]);
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => {
    ask({ ...asked, [name]: name === "at" ? Number(event.target.value) : event.target.value });
    set(null);
  };
  const body = () => ({ at: asked.at, tools: asked.tools, executor: asked.executor, ...(asked.model ? { model: asked.model } : {}), ...(asked.input ? { input: asked.input } : {}) });
  const show = async () => set(await post(`/runs${at(feed.id)}/fork/plan`, body()));
  const start = async () => {
    try {
      const { run_id } = await post(`/runs${at(feed.id)}/fork`, { ...body(), plan: plan.digest }, { key });
      close();
      note("The fork is started; when it ends, it is compared with its origin");
      go(`/runs${at(run_id)}?then=compare`);
    } catch (problem) {
      if (/** @type {any} */ (problem).status === 409) set(null);
      throw problem;
    }
  };
  return html`<${Dialog} title=${`Fork ${feed.id}`} wide onClose=${close}><form class="fork" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}><div class="row fields"><label class="field">After revision<input type="number" min="1" max=${feed.detail.value.row.revision} value=${asked.at} onInput=${change("at")} /></label><label class="field grow">Model<input value=${asked.model} placeholder=${feed.detail.value.row.model || "the same"} onInput=${change("model")} /></label><label class="field grow">Calls after that<select value=${asked.tools} onChange=${change("tools")}>${TOOLS.map(([id, name]) => html`<option key=${id} value=${id}>${name}</option>`)}</select></label><label class="field">Executor<select value=${asked.executor} onChange=${change("executor")}><option value="local">local</option><option value="durable">durable</option></select></label></div>
    <label class="field">Another input (empty: the same)<textarea value=${asked.input} onInput=${change("input")}></textarea></label>
    ${plan ? html`<${Plan} plan=${plan} />` : html`<p class="dim">Nothing is started before the plan was shown.</p>`}
    <p class="row end"><button type="button" onClick=${close}>Close</button>${plan ? html`<${Act} type="submit" class="primary" act=${start}>Start the fork<//>` : html`<${Act} type="submit" class="primary" act=${show}>Show the plan<//>`}</p></form><//>`;
}

const BECOMES = /** @type {Record<string, string>} */ ({ kept: "kept", goes_on: "goes on", begins: "begins" });

/** @param {{plan: any}} props */
function Plan({ plan }) {
  const { calls, nodes } = plan;
  return html`<section class="plan"><p>${plural(plan.shared, "event")} and ${plural(plan.steps, "step")} are shared with the origin. First: ${visible(plan.first)}.${plan.model && plan.model !== plan.model_was ? ` The model is ${visible(plan.model)}, not ${visible(plan.model_was)}.` : ""}${plan.replaces_input ? " The input is replaced." : ""}</p>${
    calls.length ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Calls"><table class="plain"><thead><tr><th>Step</th><th>Tool</th><th>Effect</th><th>In the fork</th><th>Arguments</th></tr></thead><tbody>${calls.map((/** @type {any} */ call) => html`<tr key=${call.agent_path + call.tool_call_id}><td>${call.step}</td><td class="mono">${visible(call.tool_name)}</td><td class=${call.effect === "unsafe" ? "bad" : ""}>${visible(call.effect ?? "unknown")}</td><td class=${call.effect === "unsafe" && !/^(kept|recorded)/.test(call.becomes) ? "bad" : ""}><b>${visible(String(call.becomes).replaceAll("_", " "))}</b></td><td class="mono">${oneLine(compact(call.arguments), 160)}</td></tr>`)}</tbody></table></div>` : html`<p class="dim">No call is open there, and none comes after it.</p>`
  }${nodes.length ? html`<h3>Runs below</h3><ul class="plain-list">${nodes.map((/** @type {any} */ node, /** @type {number} */ n) => html`<li key=${n}><b>${BECOMES[node.becomes] ?? node.becomes}</b> ${visible(node.agent_path)} <span class="mono dim">${visible(node.run)}</span></li>`)}</ul>` : null}</section>`;
}
