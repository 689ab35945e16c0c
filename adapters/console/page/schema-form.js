// A form of a JSON Schema: fields for the flat part of it, JSON for the rest, checked as it is typed.
import { useEffect, useState } from "./vendor/preact.js";
import { html } from "./parts.js";
import { pretty, visible } from "./text.js";

/** What is wrong with a value by its schema; empty if nothing is. @param {any} schema @param {any} value @param {string} [path] @returns {string[]} */
export function faults(schema, value, path = "") {
  if (!schema || typeof schema !== "object") return [];
  const here = path || "the value", found = [];
  const types = schema.type === undefined ? [] : [schema.type].flat();
  const is = value === null ? "null" : Array.isArray(value) ? "array" : typeof value === "number" && Number.isInteger(value) ? "integer" : typeof value;
  if (types.length && !types.includes(is) && !(is === "integer" && types.includes("number"))) return [`${here} must be ${types.join(" or ")}, not ${is}`];
  if (schema.enum && !schema.enum.some((/** @type {any} */ each) => JSON.stringify(each) === JSON.stringify(value))) found.push(`${here} must be one of ${schema.enum.map((/** @type {any} */ each) => JSON.stringify(each)).join(", ")}`);
  if (typeof value === "number" && schema.minimum !== undefined && value < schema.minimum) found.push(`${here} must be at least ${schema.minimum}`);
  if (typeof value === "number" && schema.maximum !== undefined && value > schema.maximum) found.push(`${here} must be at most ${schema.maximum}`);
  if (typeof value === "string" && schema.minLength !== undefined && value.length < schema.minLength) found.push(`${here} needs ${schema.minLength} characters`);
  if (is === "object") {
    for (const name of schema.required ?? []) if (!(name in value)) found.push(`${path ? `${path}.` : ""}${name} is missing`);
    for (const [name, of] of Object.entries(value)) {
      const known = schema.properties?.[name];
      if (known) found.push(...faults(known, of, path ? `${path}.${name}` : name));
      else if (schema.additionalProperties === false) found.push(`${path ? `${path}.` : ""}${name} is not known`);
    }
  }
  if (is === "array" && schema.items) value.forEach((/** @type {any} */ each, /** @type {number} */ n) => found.push(...faults(schema.items, each, `${path}[${n}]`)));
  return found;
}

/** @param {any} value */
function schemaOf(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return null;
  const properties = Object.fromEntries(Object.entries(value).map(([name, of]) => [name, { type: typeof of === "number" ? "number" : typeof of }]));
  return { type: "object", properties };
}

/** @param {{schema: any, value: any, onChange: (value: any) => void, onValid: (valid: boolean) => void}} props */
export function SchemaForm({ schema, value, onChange, onValid }) {
  const [asJson, setJson] = useState(false);
  const [text, type] = useState(pretty(value));
  const [broken, setBroken] = useState("");
  const form = schema?.type === "object" && schema.properties ? schema : schemaOf(value);
  const flat = form && Object.values(form.properties).every((/** @type {any} */ each) => ["string", "number", "integer", "boolean"].includes(each.type) || each.enum);
  const wrong = broken ? [broken] : faults(schema, value);
  useEffect(() => onValid(!wrong.length), [wrong.join()]);
  const change = (/** @type {string} */ written) => {
    type(written);
    try {
      onChange(JSON.parse(written));
      setBroken("");
    } catch (error) {
      setBroken(`This is not JSON yet: ${/** @type {Error} */ (error).message}`);
    }
  };
  const set = (/** @type {string} */ name, /** @type {any} */ of) => {
    const next = { ...value, [name]: of };
    if (of === undefined) delete next[name];
    onChange(next);
    type(pretty(next));
  };
  return html`<div class="schema-form">${flat && !asJson ? Object.entries(form.properties).map(([name, of]) => html`<${Field} key=${name} name=${name} of=${of} value=${value?.[name]} required=${form.required?.includes(name)} set=${set} />`) : html`<label class="field">JSON<textarea class="mono" rows="8" spellcheck="false" value=${text} onInput=${(/** @type {any} */ e) => change(e.target.value)}></textarea></label>`}${flat ? html`<button type="button" class="quiet" onClick=${() => { setJson(!asJson); type(pretty(value)); setBroken(""); }}>${asJson ? "As a form" : "As JSON"}</button>` : null}${wrong.length ? html`<ul class="bad faults" role="status">${wrong.slice(0, 5).map((each) => html`<li key=${each}>${visible(each)}</li>`)}</ul>` : null}</div>`;
}

/** @param {{name: string, of: any, value: any, required: boolean, set: (name: string, value: any) => void}} props */
function Field({ name, of, value, required, set }) {
  const label = html`<span>${visible(of.title ?? name)}${required ? " *" : ""}${of.description ? html` <span class="dim">${visible(of.description)}</span>` : null}</span>`;
  if (of.enum) return html`<label class="field">${label}<select value=${value ?? ""} onChange=${(/** @type {any} */ e) => set(name, e.target.value)}><option value=""></option>${of.enum.map((/** @type {any} */ each) => html`<option key=${each} value=${each}>${visible(each)}</option>`)}</select></label>`;
  if (of.type === "boolean") return html`<label class="row field"><input type="checkbox" checked=${value === true} onChange=${(/** @type {any} */ e) => set(name, e.target.checked)} />${label}</label>`;
  if (of.type === "number" || of.type === "integer") return html`<label class="field">${label}<input type="number" step=${of.type === "integer" ? 1 : "any"} value=${value ?? ""} onInput=${(/** @type {any} */ e) => set(name, e.target.value === "" ? undefined : Number(e.target.value))} /></label>`;
  return html`<label class="field">${label}<input value=${value ?? ""} onInput=${(/** @type {any} */ e) => set(name, e.target.value)} /></label>`;
}
