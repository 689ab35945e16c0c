// Settings: what is mine, in this browser; what the server is; who has access; what is vendored.
import { useEffect, useState } from "../vendor/preact.js";
import { html, Act, Copy, Empty, Facts, Failed, Icon, Loaded, Time, confirmed, note, useLoaded } from "../parts.js";
import { BASE, at, get, post, remove } from "../api.js";
import { place, tune } from "../route.js";
import { count, plural, visible } from "../text.js";
import { prefer, preferences } from "../preferences.js";
import { isAdmin, me, signOut, title } from "../shell.js";

/** Where the protocols are. @type {Record<string, string>} */
const ADDRESSES = { a2a: "/a2a/AGENT", agui: "/agui/AGENT", mcp: "/mcp", responses: "/v1/responses" };
const TABS = [["mine", "Mine"], ["server", "Server"], ["access", "Access"], ["about", "About"]];

export default function Settings() {
  useEffect(() => {
    title.value = "Settings";
  }, []);
  const tab = place.value.query.get("tab") ?? "mine";
  return html`<section class="view scroll settings"><header class="view-head"><h1>Settings</h1><span class="chips" role="group" aria-label="Part">${TABS.filter(([id]) => id !== "access" || isAdmin()).map(([id, name]) => html`<button type="button" key=${id} aria-pressed=${id === tab} onClick=${() => tune({ tab: id === "mine" ? null : id })}>${name}</button>`)}</span></header>${tab === "server" ? html`<${Server} />` : tab === "access" && isAdmin() ? html`<${Access} />` : tab === "about" ? html`<${About} />` : html`<${Mine} />`}</section>`;
}

/** @param {{name: string, value: string, of: [string, string][], set: (value: string) => void}} props */
function Choice({ name, value, of, set }) {
  return html`<fieldset><legend>${name}</legend>${of.map(([id, label]) => html`<label key=${id}><input type="radio" name=${name} checked=${id === value} onChange=${() => set(id)} /> ${label}</label>`)}</fieldset>`;
}

function Mine() {
  const mine = preferences.value;
  const notify = async (/** @type {boolean} */ on) => {
    if (on && "Notification" in globalThis && (await Notification.requestPermission()) !== "granted") {
      note("The browser does not allow notifications for this address", true);
      return;
    }
    prefer({ notify: on });
  };
  return html`<div class="form"><${Choice} name="Theme" value=${mine.theme} of=${[["system", "As the system"], ["light", "Light"], ["dark", "Dark"], ["contrast", "High contrast"]]} set=${(/** @type {any} */ theme) => prefer({ theme })} />
    <${Choice} name="Times" value=${mine.utc ? "utc" : "local"} of=${[["local", "Local"], ["utc", "UTC"]]} set=${(/** @type {string} */ zone) => prefer({ utc: zone === "utc" })} />
    <${Choice} name="Rows" value=${mine.density} of=${[["normal", "Normal, with reasons"], ["compact", "Compact"]]} set=${(/** @type {any} */ density) => prefer({ density })} />
    <${Choice} name="Motion" value=${mine.motion} of=${[["system", "As the system"], ["off", "None"]]} set=${(/** @type {any} */ motion) => prefer({ motion })} />
    <${Choice} name="Single keys" value=${mine.keys ? "on" : "off"} of=${[["on", "On"], ["off", "Off; Ctrl K, arrows and Enter stay"]]} set=${(/** @type {string} */ keys) => prefer({ keys: keys === "on" })} />
    <${Choice} name="Notifications of approvals" value=${mine.notify ? "on" : "off"} of=${[["off", "Off"], ["on", "On, while this tab is hidden"]]} set=${(/** @type {string} */ on) => notify(on === "on")} />
    <p class="dim">Kept in this browser, and nowhere else.</p></div>`;
}

function Server() {
  const who = me.value;
  const doctor = useLoaded("doctor", (signal) => get("/doctor", signal));
  const projections = useLoaded("projections", (signal) => get("/projections", signal));
  return html`<div class="form"><${Facts} of=${[["Namespace", html`<code>${visible(who.namespace)}</code>`], ["Version", visible(who.version)], ["Agents", who.agents.map(visible).join(", ") || "none registered here: runs are driven by workers"], ["You", `${visible(who.name)}, ${who.role}`], ["Read only", who.read_only ? "yes" : null]]} />
    ${who.no_auth ? null : html`<p><${Act} act=${signOut}>Sign out<//></p>`}
    <h2>Protocols</h2>${who.protocols.length ? html`<${Facts} of=${who.protocols.map((/** @type {string} */ name) => [name, html`<code>${ADDRESSES[name] ? location.origin + ADDRESSES[name] : "over NATS"}</code>`])} />` : html`<p class="dim">None is served: <code>--protocols</code> names them.</p>`}
    <h2>Doctor</h2><${Loaded} of=${doctor}>${(/** @type {any} */ data) => {
      return html`<ul class="assertions">${data.map((/** @type {any} */ each, /** @type {number} */ n) => {
        const good = each.state === "ok";
        return html`<li key=${n}><span class=${good ? "good" : each.state === "wrong" ? "bad" : "warn"}><${Icon} name=${good ? "completed" : "warning"} /> ${visible(each.name)}</span> ${visible(each.detail)} ${each.remedy ? html`<b>${visible(each.remedy)}</b>` : null}</li>`;
      })}</ul>`;
    }}<//>
    <h2>Projections</h2><${Loaded} of=${projections}>${(/** @type {any} */ data) => {
      const rows = data;
      return html`<div class="scroll-x"><table class="plain"><thead><tr><th>Name</th><th class="number">Version</th><th class="number">Behind the log</th></tr></thead><tbody>${(Array.isArray(rows) ? rows : []).map((/** @type {any} */ each) => html`<tr key=${each.name}><td>${visible(each.name)}</td><td class="number">${each.version ?? ""}</td><td class="number">${each.lag === undefined ? "–" : plural(each.lag, "commit")}</td></tr>`)}</tbody></table></div>${
        isAdmin()
          ? html`<p><${Act} act=${async () => {
              if (!(await confirmed({ title: "Rebuild the projections?", text: "They are read again from the log. Lists are empty meanwhile; nothing is lost.", verb: "Rebuild" }))) return;
              await post("/projections/rebuild");
              note("The projections are being rebuilt");
              projections.reload();
            }}>Rebuild<//></p>`
          : null
      }`;
    }}<//></div>`;
}

function Access() {
  const tokens = useLoaded("tokens", (signal) => get("/tokens", signal));
  const [asked, ask] = useState({ name: "", role: "viewer" });
  const [secret, show] = useState("");
  const issue = async () => {
    const { token } = await post("/tokens", asked);
    show(token);
    tokens.reload();
  };
  const revoke = (/** @type {any} */ each) => async () => {
    if (!(await confirmed({ title: `Revoke the token ${each.name}?`, text: "Its holder is refused from then on.", verb: "Revoke" }))) return;
    await remove(`/tokens${at(each.id ?? each.name)}`);
    note(`The token ${each.name} is revoked`);
    tokens.reload();
  };
  return html`<div class="form"><form class="row" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}><label class="field grow">Name<input required value=${asked.name} onInput=${(/** @type {any} */ e) => ask({ ...asked, name: e.target.value })} /></label><label class="field">Role<select value=${asked.role} onChange=${(/** @type {any} */ e) => ask({ ...asked, role: e.target.value })}>${["viewer", "operator", "admin"].map((role) => html`<option key=${role} value=${role}>${role}</option>`)}</select></label><${Act} type="submit" class="primary" disabled=${!asked.name} act=${issue}>Issue<//></form>
    ${secret ? html`<p class="command"><code>${secret}</code><${Copy} text=${secret} what="token" /></p><p class="warn">It is shown this once.</p>` : null}
    <${Loaded} of=${tokens}>${(/** @type {any} */ data) => {
      const rows = data.rows ?? data;
      return rows.length ? html`<div class="scroll-x"><table class="plain"><thead><tr><th>Name</th><th>Role</th><th>By</th><th>Expires</th><th>Last used</th><th><span class="visually-hidden">Revoke</span></th></tr></thead><tbody>${rows.map((/** @type {any} */ each) => html`<tr key=${each.id ?? each.name}><td>${visible(each.name)}</td><td>${each.role}</td><td>${visible(each.by ?? each.created_by ?? "")}</td><td><${Time} at=${each.expires_at} /></td><td><${Time} at=${each.used_at} /></td><td class="number">${each.revoked_at ? html`<span class="dim">revoked</span>` : html`<${Act} class="danger" act=${revoke(each)}>Revoke<//>`}</td></tr>`)}</tbody></table></div>` : html`<${Empty} title="No tokens"><p>Only the one-time key of the start signs in.</p><//>`;
    }}<//></div>`;
}

function About() {
  const [text, set] = useState("");
  useEffect(() => {
    fetch(`${BASE}vendor/LICENSES.txt`).then((answer) => answer.text()).then(set, () => set("The texts could not be loaded."));
  }, []);
  return html`<div class="prose"><p>foldlog runs LLM agents on an append-only event log. Everything shown here is read from that log, and every action is an event with its actor.</p><h2>What is vendored</h2><pre class="long licences" tabindex="0" role="group" aria-label="Licences">${text}</pre></div>`;
}
