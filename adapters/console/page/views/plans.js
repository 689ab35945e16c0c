// Standing plans: the list; one plan with its steps to edit, and its versions.
import { useEffect, useState } from "../vendor/preact.js";
import { html, Act, Command, Empty, Id, Loaded, Time, confirmed, note, useLoaded } from "../parts.js";
import { at, get, newKey, post, query, remove } from "../api.js";
import { go, place, tune, url } from "../route.js";
import { visible } from "../text.js";
import { mayAct, title } from "../shell.js";

const STATUSES = ["pending", "in_progress", "completed"];
const spoken = (/** @type {string} */ status) => status.replace("_", " ");
const done = (/** @type {any} */ plan) => `${plan.steps.filter((/** @type {any} */ each) => each.status === "completed").length} of ${plan.steps.length}`;

/** @param {{plan?: string}} props */
export default function Plans({ plan }) {
  useEffect(() => {
    title.value = plan ? plan : "Plans";
  }, [plan]);
  return plan ? html`<${One} name=${plan} />` : html`<${All} />`;
}

function All() {
  const plans = useLoaded("plans", (signal) => get("/plans", signal));
  const fresh = place.value.query.get("new") === "1";
  return html`<section class="view scroll"><header class="view-head"><h1>Plans</h1>${mayAct() ? html`<button type="button" onClick=${() => tune({ new: fresh ? null : "1" })}>${fresh ? "Close the form" : "New plan"}</button>` : null}</header>
    ${fresh && mayAct() ? html`<${Form} plan=${{ name: "", goal: "", steps: [] }} version=${0} />` : null}
    <${Loaded} of=${plans}>${(/** @type {any[]} */ rows) => rows.length
      ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Standing plans"><table class="plain"><thead><tr><th>Plan</th><th class="number">Version</th><th>Status</th><th>Done</th><th>Changed</th><th>By</th><th>Goal</th></tr></thead><tbody>${rows.map((row) => html`<tr key=${row.name}><td><a href=${url(`/plans${at(row.name)}`)}>${visible(row.name)}</a></td><td class="number">${row.version}</td><td>${spoken(row.status)}</td><td>${done(row)}</td><td><${Time} at=${row.at} /></td><td>${visible(row.by)}</td><td class="wide">${visible(row.goal)}</td></tr>`)}</tbody></table></div>`
      : html`<${Empty} title="No standing plans"><p>Runs of an agent with a standing_plan follow and update it. To write one:</p><${Command} line="foldlog plans save FILE" /><//>`}<//></section>`;
}

/** @param {{name: string}} props */
function One({ name }) {
  const version = place.value.query.get("version");
  const path = `/plans${at(name)}`;
  const shown = useLoaded(`${path}?${version}`, (signal) => get(`${path}${query({ version })}`, signal));
  const drop = async (/** @type {number} */ last) => {
    if (!(await confirmed({ title: `Remove the plan ${name}?`, text: "Runs that are to follow it end with an error. Its versions stay.", verb: "Remove" }))) return;
    await remove(`${path}${query({ version: last })}`);
    note(`${name} is removed`);
    go("/plans");
  };
  return html`<section class="view scroll"><header class="view-head"><h1>${visible(name)}</h1></header><${Loaded} of=${shown}>${(/** @type {any} */ data) => {
    const { plan, versions } = data, last = versions[versions.length - 1];
    return html`<div class="parts"><p class="row">${last.removed ? html`<span class="is-paused">removed</span>` : null}<span>version ${plan.version} of ${last.version}, ${spoken(plan.status)}, ${done(plan)} done, changed <${Time} at=${plan.at} />${plan.by ? ` by ${visible(plan.by)}` : ""}</span>${mayAct() && !last.removed ? html`<${Act} class="danger" act=${() => drop(last.version)}>Remove<//>` : null}</p>
      <section><h2>Steps</h2><${Form} key=${`${plan.version}-${last.removed}`} plan=${plan} version=${last.removed ? 0 : last.version} saved=${() => { tune({ version: null }); shown.reload(); }} /></section>
      <section><h2>Versions</h2><div class="scroll-x" tabindex="0" role="group" aria-label="Versions"><table class="plain"><thead><tr><th>Version</th><th>Done</th><th>When</th><th>By</th><th>Through</th><th>Run</th><th>Note</th></tr></thead><tbody>${[...versions].reverse().map((/** @type {any} */ each) => html`<tr key=${each.version}><td><a href=${url(`${path}${query({ version: each.version })}`)} aria-current=${each.version === plan.version ? "true" : undefined}>${each.version}</a></td><td>${each.removed ? "removed" : done(each)}</td><td><${Time} at=${each.at} /></td><td>${visible(each.by)}</td><td>${each.via}</td><td>${each.run ? html`<${Id} id=${each.run} href=${`/runs${at(each.run)}`} copy=${false} />` : ""}</td><td class="wide">${visible(each.note)}</td></tr>`)}</tbody></table></div></section></div>`;
  }}<//></section>`;
}

/** The steps of a plan, to edit; saved as the next version unless another person, or a run, was first.
 * @param {{plan: any, version: number, saved?: () => void}} props */
function Form({ plan, version, saved }) {
  const [name, rename] = useState(plan.name);
  const [goal, aim] = useState(plan.goal);
  const [steps, set] = useState(/** @type {any[]} */ (plan.steps.length ? plan.steps.map((/** @type {any} */ each) => ({ status: "pending", note: "", ...each })) : [{ text: "", status: "pending", note: "" }]));
  const [why, say] = useState("");
  const readonly = !mayAct();
  const change = (/** @type {number} */ n, /** @type {any} */ fields) => set(steps.map((each, i) => (i === n ? { ...each, ...fields } : each)));
  const move = (/** @type {number} */ n, /** @type {number} */ by) => {
    const next = [...steps], [taken] = next.splice(n, 1);
    next.splice(n + by, 0, taken);
    set(next);
  };
  const save = async () => {
    const stored = await post("/plans", { name, goal, steps: steps.filter((each) => each.text.trim()), version, note: why }, { key: newKey() });
    note(`${stored.name} is at version ${stored.version}`);
    if (saved) saved();
    else go(`/plans${at(stored.name)}`);
  };
  const heard = (/** @type {(value: string) => void} */ act) => (/** @type {any} */ e) => act(e.target.value);
  return html`<form class="form" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}>
    ${saved ? null : html`<label class="field">Name<input value=${name} onInput=${heard(rename)} /></label>`}
    <label class="field">Goal<input readonly=${readonly} value=${goal} onInput=${heard(aim)} /></label>
    <div class="scroll-x" tabindex="0" role="group" aria-label="Steps"><table class="plain edited"><thead><tr><th>Id</th><th>Step</th><th>Status</th><th>Note</th>${readonly ? null : html`<th><span class="visually-hidden">Change</span></th>`}</tr></thead><tbody>${steps.map((each, n) => html`<tr key=${n}><td class="mono">${visible(each.id ?? "")}</td><td><input aria-label=${`Text of step ${n + 1}`} readonly=${readonly} value=${each.text} onInput=${heard((text) => change(n, { text }))} /></td><td><select aria-label=${`Status of step ${n + 1}`} disabled=${readonly} value=${each.status} onChange=${heard((status) => change(n, { status }))}>${STATUSES.map((status) => html`<option key=${status} value=${status}>${spoken(status)}</option>`)}</select></td><td><input aria-label=${`Note of step ${n + 1}`} readonly=${readonly} value=${each.note} onInput=${heard((noted) => change(n, { note: noted }))} /></td>${readonly ? null : html`<td><span class="row"><button type="button" class="quiet" aria-label=${`Move step ${n + 1} up`} disabled=${n === 0} onClick=${() => move(n, -1)}>↑</button><button type="button" class="quiet" aria-label=${`Move step ${n + 1} down`} disabled=${n === steps.length - 1} onClick=${() => move(n, 1)}>↓</button><button type="button" class="quiet" aria-label=${`Remove step ${n + 1}`} onClick=${() => set(steps.filter((_, i) => i !== n))}>Remove</button></span></td>`}</tr>`)}</tbody></table></div>
    ${readonly ? null : html`<p class="row"><button type="button" onClick=${() => set([...steps, { text: "", status: "pending", note: "" }])}>Add a step</button></p><label class="field">Why it is changed<input value=${why} onInput=${heard(say)} /></label><p class="row end"><${Act} type="submit" class="primary" disabled=${!name || !steps.some((each) => each.text.trim())} act=${save}>Save as the next version<//></p>`}</form>`;
}
