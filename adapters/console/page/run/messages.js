// A conversation as it is sent: role by role, with calls and results.
import { html, Long } from "../parts.js";
import { compact, plural, visible } from "../text.js";

/** `tokens` are estimates, by message; `known` are the messages before, as JSON: others are marked as new.
 * @param {{messages: any[], tokens?: number[], known?: Set<string>|null}} props */
export function Messages({ messages, tokens, known }) {
  return html`<ol class="messages">${messages.map((message, n) => html`<li key=${n} class=${`role-${message.role}`}><header class="row"><b>${visible(message.role)}</b>${message.name ? html`<span class="mono">${visible(message.name)}</span>` : null}${message.tool_call_id ? html`<span class="dim mono">${visible(message.tool_call_id)}</span>` : null}${tokens ? html`<span class="dim">≈ ${plural(tokens[n], "token")}</span>` : null}${known && !known.has(JSON.stringify(message)) ? html`<span class="tag">new</span>` : null}</header>
    ${message.reasoning ? html`<details><summary>Reasoning</summary><${Long} value=${message.reasoning} label="Reasoning" /></details>` : null}
    ${message.content ? html`<${Long} value=${typeof message.content === "string" ? message.content : message.content} label=${`Message of ${message.role}`} />` : null}
    ${(message.tool_calls ?? []).map((/** @type {any} */ call, /** @type {number} */ each) => html`<pre key=${each} class="long arguments"><b>${visible(call.name ?? call.tool_name ?? call.function?.name)}</b> ${visible(compact(call.arguments ?? call.function?.arguments))}</pre>`)}</li>`)}</ol>`;
}
