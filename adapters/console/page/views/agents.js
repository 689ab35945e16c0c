// Stored agents: the list; one agent with its form, its versions and their differences.
import { useEffect, useState } from "../vendor/preact.js";
import { html, Act, Command, Empty, Loaded, Time, confirmed, note, useLoaded } from "../parts.js";
import { address, at, get, newKey, post, query, remove } from "../api.js";
import { go, place, tune, url } from "../route.js";
import { pretty, visible } from "../text.js";
import { isAdmin, mayAct, title } from "../shell.js";

/** The keys that most agents set; the others are folded away. */
const FIRST = ["name", "model", "instructions", "tools", "hitl_tools", "max_steps"];

/** @param {{agent?: string}} props */
export default function Agents({ agent }) {
  useEffect(() => {
    title.value = agent ? agent : "Agents";
  }, [agent]);
  return agent ? html`<${One} name=${agent} />` : html`<${All} />`;
}

function All() {
  const agents = useLoaded("agents", (signal) => get("/agents", signal));
  const fresh = place.value.query.get("new") === "1";
  const take = async (/** @type {Event} */ event) => {
    const field = /** @type {HTMLInputElement} */ (event.target), file = field.files?.[0];
    field.value = "";
    if (!file) return;
    try {
      const saved = await post("/agents", { text: await file.text(), format: file.name.endsWith(".json") ? "json" : "toml", note: `from ${file.name}` }, { key: newKey() });
      note(`${saved.name} is stored as version ${saved.version}`);
      go(`/agents${at(saved.name)}`);
    } catch (problem) {
      note(/** @type {Error} */ (problem).message, true);
    }
  };
  return html`<section class="view scroll"><header class="view-head"><h1>Agents</h1>${isAdmin() ? html`<button type="button" onClick=${() => tune({ new: fresh ? null : "1" })}>${fresh ? "Close the form" : "New agent"}</button><label class="field">Import a file<input type="file" accept=".toml,.json" onChange=${take} /></label>` : null}</header>
    ${fresh && isAdmin() ? html`<${Form} config=${{}} version=${0} />` : null}
    <${Loaded} of=${agents}>${(/** @type {any[]} */ rows) => rows.length
      ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Stored agents"><table class="plain"><thead><tr><th>Agent</th><th class="number">Version</th><th>Model</th><th>Saved</th><th>By</th><th class="number">Workers</th><th>Note</th></tr></thead><tbody>${rows.map((row) => html`<tr key=${row.name}><td><a href=${url(`/agents${at(row.name)}`)}>${visible(row.name)}</a></td><td class="number">${row.version}</td><td class="mono">${visible(row.model)}</td><td><${Time} at=${row.at} /></td><td>${visible(row.by)}</td><td class="number">${row.workers.length || html`<span class="warn">none</span>`}</td><td class="wide">${visible(row.note)}</td></tr>`)}</tbody></table></div>`
      : html`<${Empty} title="No stored agents"><p>Agents in code are served by their workers. To keep one in the log:</p><${Command} line="foldlog agents save FILE" /><//>`}<//></section>`;
}

/** @param {{name: string}} props */
function One({ name }) {
  const version = place.value.query.get("version"), before = place.value.query.get("before");
  const path = `/agents${at(name)}`;
  const shown = useLoaded(`${path}?${version}`, (signal) => get(`${path}${query({ version })}`, signal));
  const differs = useLoaded(before ? `${path}/diff?${before}-${version}` : null, (signal) => get(`${path}/diff${query({ before, after: version ?? shown.data?.agent.version })}`, signal));
  const [input, type] = useState("");
  const start = async () => {
    const { run_id } = await post("/runs", { agent: name, version: version ? Number(version) : null, input }, { key: newKey() });
    go(`/runs${at(run_id)}`);
  };
  const drop = async (/** @type {number} */ last) => {
    if (!(await confirmed({ title: `Remove the agent ${name}?`, text: "Nothing more is started of it. Its runs go on, and its versions stay.", verb: "Remove" }))) return;
    await remove(`${path}${query({ version: last })}`);
    note(`${name} is removed`);
    go("/agents");
  };
  return html`<section class="view scroll"><header class="view-head"><h1>${visible(name)}</h1></header><${Loaded} of=${shown}>${(/** @type {any} */ data) => {
    const { agent, changes, removed } = data, last = changes[changes.length - 1].version;
    return html`<div class="parts"><p class="row">${removed ? html`<span class="is-paused">removed</span>` : null}<span>version ${agent.version} of ${last}, saved <${Time} at=${agent.at} />${agent.by ? ` by ${visible(agent.by)}` : ""}</span><a href=${address(`${path}/export${query({ version: agent.version, format: "toml" })}`)} download>TOML</a><a href=${address(`${path}/export${query({ version: agent.version, format: "json" })}`)} download>JSON</a>${isAdmin() && !removed ? html`<${Act} class="danger" act=${() => drop(last)}>Remove<//>` : null}</p>
      ${mayAct() && !removed ? html`<form class="start" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}><label class="field grow">Input<input value=${input} onInput=${(/** @type {any} */ e) => type(e.target.value)} /></label><${Act} type="submit" class="primary" disabled=${!input} act=${start}>Start a run<//></form>` : null}
      <section><h2>Versions</h2><div class="scroll-x" tabindex="0" role="group" aria-label="Versions"><table class="plain"><thead><tr><th class="number">Version</th><th>Change</th><th>When</th><th>By</th><th>Through</th><th>Note</th><th><span class="visually-hidden">Compare</span></th></tr></thead><tbody>${[...changes].reverse().map((/** @type {any} */ each, /** @type {number} */ n) => html`<tr key=${n}><td class="number"><a href=${url(`${path}${query({ version: each.version })}`)} aria-current=${each.version === agent.version ? "true" : undefined}>${each.version}</a></td><td>${each.kind}</td><td><${Time} at=${each.at} /></td><td>${visible(each.by)}</td><td>${each.via}</td><td class="wide">${visible(each.note)}</td><td>${each.version === agent.version || each.kind === "removed" ? "" : html`<button type="button" class="quiet" aria-pressed=${before === String(each.version)} onClick=${() => tune({ before: before === String(each.version) ? null : String(each.version) })}>Compare with ${each.version}</button>`}</td></tr>`)}</tbody></table></div></section>
      ${before ? html`<section><h2>From version ${before} to ${agent.version}</h2><${Loaded} of=${differs}>${(/** @type {any[]} */ rows) => rows.length ? html`<div class="scroll-x" tabindex="0" role="group" aria-label="Differences"><table class="plain"><thead><tr><th>Key</th><th>Before</th><th>After</th></tr></thead><tbody>${rows.map((each) => html`<tr key=${each.key}><td class="mono">${visible(each.key)}</td><td class="mono wide">${visible(each.before === null ? "–" : pretty(each.before))}</td><td class="mono wide">${visible(each.after === null ? "–" : pretty(each.after))}</td></tr>`)}</tbody></table></div>` : html`<p>No key differs.</p>`}<//></section>` : null}
      <section><h2>${isAdmin() ? "Edit" : "Configuration"}</h2><${Form} key=${`${agent.version}-${removed}`} config=${agent.config} version=${removed ? 0 : last} saved=${() => { tune({ version: null, before: null }); shown.reload(); }} /></section></div>`;
  }}<//></section>`;
}

/** A form made from the JSON Schema of a configuration; what is wrong stands at its key.
 * @param {{config: any, version: number, saved?: () => void}} props */
function Form({ config, version, saved }) {
  const schema = useLoaded("agent-schema", (signal) => get("/agents/schema.json", signal));
  const [given, set] = useState(config);
  const [why, say] = useState("");
  const [broken, breaks] = useState(/** @type {Record<string, string>} */ ({}));
  const [problems, tell] = useState(/** @type {{key: string, message: string}[]} */ ([]));
  const change = (/** @type {string} */ name, /** @type {any} */ value, fault = "") => {
    breaks((before) => ({ ...before, [name]: fault }));
    if (fault) return;
    set((/** @type {any} */ before) => {
      const next = { ...before, [name]: value };
      if (value === undefined) delete next[name];
      return next;
    });
  };
  const faulty = Object.values(broken).some(Boolean);
  const check = async () => {
    const found = (await post("/agents/check", { config: given })).problems;
    tell(found);
    if (!found.length) note("Nothing is wrong");
  };
  const save = async () => {
    try {
      const stored = await post("/agents", { config: given, version, note: why }, { key: newKey() });
      tell([]);
      note(`${stored.name} is at version ${stored.version}`);
      if (saved) saved();
      else go(`/agents${at(stored.name)}`);
    } catch (problem) {
      const found = /** @type {any} */ (problem).body?.problems;
      tell(found ?? []);
      if (!found) throw problem; // each of them stands at its key
    }
  };
  return html`<${Loaded} of=${schema}>${(/** @type {any} */ of) => {
    const names = [...FIRST, ...Object.keys(of.properties).filter((name) => !FIRST.includes(name) && !["kind", "instructions_function", "output_validators"].includes(name))];
    const wrong = (/** @type {string} */ name) => [broken[name] ?? "", ...problems.filter(({ key }) => key === name || key.startsWith(`${name}.`)).map(({ message }) => message)].filter(Boolean);
    const field = (/** @type {string} */ name) => html`<${Field} key=${name} name=${name} of=${resolved(of.properties[name], of)} value=${given[name]} wrong=${wrong(name)} change=${change} readonly=${!isAdmin()} />`;
    const others = problems.filter(({ key }) => !names.includes(key.split(".")[0]));
    const more = names.slice(FIRST.length);
    return html`<form class="form" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}>${others.length ? html`<ul class="bad faults" role="alert">${others.map(({ message }) => html`<li key=${message}>${visible(message)}</li>`)}</ul>` : null}${FIRST.map(field)}<details open=${more.some((name) => wrong(name).length)}><summary>All other keys</summary>${more.map(field)}</details>${isAdmin() ? html`<label class="field">Why it is changed<input value=${why} onInput=${(/** @type {any} */ e) => say(e.target.value)} /></label><p class="row end"><${Act} disabled=${faulty} act=${check}>Check<//><${Act} type="submit" class="primary" disabled=${faulty} act=${save}>Save as the next version<//></p>` : null}</form>`;
  }}<//>`;
}

/** The schema of a field without references, and without the null that means "not set". @param {any} of @param {any} whole */
function resolved(of, whole) {
  const follow = (/** @type {any} */ each) => (each?.$ref ? { ...whole.$defs[each.$ref.split("/").pop()], ...each } : each ?? {});
  const one = follow(of), kinds = (one.anyOf ?? []).map(follow).filter((/** @type {any} */ each) => each.type !== "null");
  return kinds.length === 1 ? { ...kinds[0], description: one.description ?? kinds[0].description } : one;
}

/** @param {{name: string, of: any, value: any, wrong: string[], change: (name: string, value: any, fault?: string) => void, readonly: boolean}} props */
function Field({ name, of, value, wrong, change, readonly }) {
  const label = html`<span>${name}${of.description ? html` <span class="dim">${visible(of.description.split("\n")[0])}</span>` : null}</span>`;
  const faults = wrong.length ? html`<span class="bad faults" role="status">${visible(wrong.join("; "))}</span>` : null;
  const texts = of.type === "array" && of.items?.type === "string";
  const [text, type] = useState(value === undefined ? "" : texts ? value.join("\n") : pretty(value));
  const written = (/** @type {any} */ e) => {
    type(e.target.value);
    if (texts) change(name, e.target.value.split("\n").map((/** @type {string} */ each) => each.trim()).filter(Boolean));
    else if (!e.target.value.trim()) change(name, undefined);
    else {
      try {
        change(name, JSON.parse(e.target.value));
      } catch (error) {
        change(name, undefined, `not JSON yet: ${/** @type {Error} */ (error).message}`);
      }
    }
  };
  if (of.enum) return html`<label class="field">${label}<select disabled=${readonly} value=${value ?? ""} onChange=${(/** @type {any} */ e) => change(name, e.target.value || undefined)}><option value=""></option>${of.enum.map((/** @type {any} */ each) => html`<option key=${each} value=${each}>${visible(each)}</option>`)}</select>${faults}</label>`;
  if (of.type === "boolean") return html`<label class="row field"><input type="checkbox" disabled=${readonly} checked=${value === true} onChange=${(/** @type {any} */ e) => change(name, e.target.checked)} />${label}${faults}</label>`;
  if (of.type === "number" || of.type === "integer") return html`<label class="field">${label}<input type="number" readonly=${readonly} step=${of.type === "integer" ? 1 : "any"} value=${value ?? ""} onInput=${(/** @type {any} */ e) => change(name, e.target.value === "" ? undefined : Number(e.target.value))} />${faults}</label>`;
  if (of.type === "string" && !/instructions/.test(name)) return html`<label class="field">${label}<input readonly=${readonly} value=${value ?? ""} onInput=${(/** @type {any} */ e) => change(name, e.target.value || undefined)} />${faults}</label>`;
  if (of.type === "string") return html`<label class="field">${label}<textarea rows="5" readonly=${readonly} value=${value ?? ""} onInput=${(/** @type {any} */ e) => change(name, e.target.value || undefined)}></textarea>${faults}</label>`;
  return html`<label class="field">${label}<span class="dim">${texts ? "one a line" : "JSON"}</span><textarea class="mono" rows="3" spellcheck="false" readonly=${readonly} value=${text} onInput=${written}></textarea>${faults}</label>`;
}
