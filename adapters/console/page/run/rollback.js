// A rollback: the plan of what undoes the calls of a run, and only then its start.
import { useEffect, useMemo, useState } from "../vendor/preact.js";
import { html, Act, Dialog, Failed, Id, Skeleton, note } from "../parts.js";
import { at, newKey, post } from "../api.js";
import { go } from "../route.js";
import { compact, oneLine, plural, visible } from "../text.js";
import { isAdmin } from "../shell.js";

/** @param {{feed: import("./feed.js").Feed, close: () => void}} props */
export function Rollback({ feed, close }) {
  const [plan, set] = useState(/** @type {any} */ (null));
  const [problem, failed] = useState(/** @type {any} */ (null));
  const [from, begin] = useState(/** @type {string|null} */ (null));
  const [first, keep] = useState(/** @type {any[]} */ ([]));
  const key = useMemo(newKey, [plan]);
  const body = { ...(from ? { from_step: from } : {}) };
  const show = () => {
    set(null);
    post(`/runs${at(feed.id)}/rollback/plan`, body).then((found) => {
      failed(null);
      set(found);
      if (!from) keep(found.steps);
    }, failed);
  };
  useEffect(show, [from]);
  const start = async () => {
    try {
      const { run_id } = await post(`/runs${at(feed.id)}/rollback`, { ...body, plan: plan.digest }, { key });
      close();
      note("The rollback is started");
      go(`/runs${at(run_id)}`);
    } catch (error) {
      if (/** @type {any} */ (error).status === 409) show();
      throw error;
    }
  };
  return html`<${Dialog} title=${`Roll back ${feed.id}`} wide onClose=${close}><form class="fork" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}>
    ${first.length > 1 ? html`<label class="field">Undo<select value=${from ?? ""} onChange=${(/** @type {any} */ e) => begin(e.target.value || null)}><option value="">all of it</option>${first.map((/** @type {any} */ each) => html`<option key=${each.step} value=${each.undoes.call}>from ${visible(each.undoes.tool)} on (${visible(each.undoes.call)})</option>`)}</select></label>` : null}
    ${problem ? html`<${Failed} problem=${problem} retry=${show} />` : !plan ? html`<${Skeleton} lines=${3} />` : html`<${Plan} plan=${plan} />`}
    <p class="row end"><button type="button" onClick=${close}>Close</button>${plan && !plan.rollback && plan.steps.length ? (isAdmin() ? html`<${Act} type="submit" class="danger" act=${start}>Roll back<//>` : html`<span class="dim">An admin starts it.</span>`) : null}</p></form><//>`;
}

/** @param {{plan: any}} props */
function Plan({ plan }) {
  if (plan.rollback) return html`<section class="plan"><p>It is rolled back, or about to be, by <${Id} id=${plan.rollback} href=${`/runs${at(plan.rollback)}`} />.</p></section>`;
  if (!plan.steps.length) return html`<section class="plan"><p>No call of this run has anything to undo.</p></section>`;
  return html`<section class="plan"><p>${plural(plan.steps.length, "step")}, the last call first. Each waits for an approval before it is made.</p><div class="scroll-x" tabindex="0" role="group" aria-label="Steps"><table class="plain"><thead><tr><th>Step</th><th>Undoes</th><th>By</th><th>With</th></tr></thead><tbody>${plan.steps.map((/** @type {any} */ each) => html`<tr key=${each.step}><td class="mono">${visible(each.step)}</td><td class="mono">${visible(each.undoes.tool)} <span class="dim">${visible(each.undoes.call)}</span></td><td>${each.tool ? html`<b class="mono">${visible(each.tool)}</b>` : html`<b class="warn">by hand</b>`}</td><td class="wide">${each.tool ? html`<span class="mono">${oneLine(compact(each.arguments), 200)}</span>` : visible(each.by_hand ?? "")}</td></tr>`)}</tbody></table></div></section>`;
}
