// The page: who is signed in, the shell around the views, and which view an address names.
import { render, signal, useEffect, useRef, useState } from "./vendor/preact.js";
import { get, post, whenLate, whenSignedOut } from "./api.js";
import { preferences, prefer } from "./preferences.js";
import { place, go, url } from "./route.js";
import { html, Icon, Notes, Confirmation, Dialog, Guard, Skeleton, Failed, Empty, note } from "./parts.js";
import { HELP, helpShown, paletteShown, useKeys } from "./keys.js";
import { Palette } from "./palette.js";
import { clock, visible } from "./text.js";
import { state as stream } from "./stream.js";
import { me, pendingApprovals, signedOut, signOut, violations, followShell } from "./shell.js";

const VIEWS = /** @type {[RegExp, () => Promise<any>][]} */ ([
  [/^\/runs$/, () => import("./views/runs.js")],
  [/^\/runs\/(?<run>[^/]+)$/, () => import("./views/run.js")],
  [/^\/jobs$/, () => import("./views/jobs.js")],
  [/^\/approvals(?:\/(?<approval>[^/]+))?$/, () => import("./views/approvals.js")],
  [/^\/queue$/, () => import("./views/queue.js")],
  [/^\/workers$/, () => import("./views/workers.js")],
  [/^\/compare$/, () => import("./views/compare.js")],
  [/^\/sessions(?:\/(?<session>.+))?$/, () => import("./views/sessions.js")],
  [/^\/costs$/, () => import("./views/costs.js")],
  [/^\/agents(?:\/(?<agent>[^/]+))?$/, () => import("./views/agents.js")],
  [/^\/plans(?:\/(?<plan>[^/]+))?$/, () => import("./views/plans.js")],
  [/^\/schedules$/, () => import("./views/schedules.js")],
  [/^\/monitor$/, () => import("./views/monitor.js")],
  [/^\/settings$/, () => import("./views/settings.js")],
]);

export const SCREENS = /** @type {[string, string, any][]} */ ([
  ["/runs", "Runs", "runs"],
  ["/jobs", "Jobs", "jobs"],
  ["/approvals", "Approvals", "approvals"],
  ["/queue", "Queue", "queue"],
  ["/workers", "Workers", "workers"],
  ["/compare", "Compare", "compare"],
  ["/sessions", "Sessions", "sessions"],
  ["/costs", "Costs", "costs"],
  ["/agents", "Agents", "agents"],
  ["/plans", "Plans", "plans"],
  ["/schedules", "Schedules", "schedules"],
  ["/monitor", "Monitor", "monitor"],
  ["/settings", "Settings", "settings"],
]);

const refused = signal(/** @type {any} */ (null));

whenSignedOut(() => {
  signedOut.value = true;
  me.value = null;
});

whenLate(() => note("Sent, not seen yet", false, true));

/** Sign in by the one-time key of the address, or see who we are already. */
async function begin() {
  const key = /^#k=(.+)$/.exec(location.hash)?.[1];
  if (key) history.replaceState(null, "", location.pathname + location.search);
  try {
    if (key) await post("/session", { key: decodeURIComponent(key) }).catch(async (problem) => {
      await get("/me").catch(() => Promise.reject(problem)); // signed in before: a key that was used harms nothing
    });
    await signedIn();
  } catch (problem) {
    if (/** @type {any} */ (problem).status === 401) {
      signedOut.value = true;
      if (key) refused.value = problem;
    } else refused.value = problem;
  }
}

async function signedIn() {
  me.value = await get("/me");
  signedOut.value = false;
  refused.value = null;
  followShell();
}

function SignIn() {
  const [token, type] = useState("");
  const [failed, set] = useState(/** @type {any} */ (null));
  const problem = failed ?? refused.value;
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await post("/session", { token: token.trim() });
      await signedIn();
    } catch (error) {
      set(error);
    }
  };
  return html`<main class="sign-in"><form onSubmit=${submit}><h1><span class="mark"></span>foldlog</h1>
    <label class="field">Token<input type="password" autocomplete="current-password" required autofocus value=${token} onInput=${(/** @type {any} */ e) => type(e.target.value)} placeholder="fl_…" /></label>
    <p class="row end"><button type="submit" class="primary">Sign in</button></p>
    ${problem ? html`<p class="bad" role="alert">${visible(problem.message)}</p>` : null}
    <p class="dim">The start of <code>foldlog console</code> prints an address that signs one browser in, once, within a minute.</p></form></main>`;
}

function StreamState() {
  const { is, since } = stream.value;
  const told = /** @type {Record<string, string>} */ ({
    live: "live",
    idle: "connecting",
    reconnecting: `reconnecting since ${clock(since, preferences.value.utc)}`,
    log: `log unreachable since ${clock(since, preferences.value.utc)}`,
  })[is];
  return html`<span class=${`stream is-${is}`} role="status" aria-live="off" title=${is === "live" ? "Changes appear as they are stored" : "What is shown may be old"}><i></i>${told}</span>`;
}

function Header() {
  const who = me.value;
  const themes = [["system", "System"], ["light", "Light"], ["dark", "Dark"], ["contrast", "High contrast"]];
  return html`<header>${who.no_auth ? html`<p class="no-auth"><${Icon} name="warning" /> No access control: everybody who reaches this address may do everything (<code>--no-auth</code>).</p>` : null}<div class="top"><a class="brand" href=${url("/runs")} aria-label="foldlog, runs"><span class="mark"></span><span>foldlog</span></a>
    <span class="namespace" title="Namespace">${visible(who.namespace)}</span><${StreamState} />
    <span class="grow"></span>
    <button type="button" class="quiet palette-button" aria-label="Find" onClick=${() => (paletteShown.value = true)}><${Icon} name="search" /> <span>Find</span> <kbd>Ctrl K</kbd></button>
    <button type="button" class="quiet zone" aria-pressed=${preferences.value.utc} title="Times are local or UTC, everywhere" onClick=${() => prefer({ utc: !preferences.value.utc })}>${preferences.value.utc ? "UTC" : "Local"}</button>
    <label class="theme"><span class="visually-hidden">Theme</span><select value=${preferences.value.theme} onChange=${(/** @type {any} */ e) => prefer({ theme: e.target.value })}>${themes.map(([id, name]) => html`<option key=${id} value=${id}>${name}</option>`)}</select></label>
    <span class="who" title=${`Signed in as ${who.name}, ${who.role}`}>${visible(who.name)} <span class="dim">${who.role}</span></span>
    ${who.no_auth ? null : html`<button type="button" class="quiet sign-out" onClick=${signOut}>Sign out</button>`}
  </div></header>`;
}

function Navigation() {
  const path = place.value.path, counted = pendingApprovals.value, here = useRef(/** @type {HTMLElement|null} */ (null));
  useEffect(() => {
    // Where the screens are one line, that of the view is in sight. The page itself stays where it is.
    const link = here.current?.querySelector("[aria-current]");
    if (link instanceof HTMLElement && here.current) here.current.scrollLeft = link.offsetLeft - here.current.clientWidth / 2 + link.offsetWidth / 2;
  }, [path]);
  return html`<nav aria-label="Screens" ref=${here}><ul>${SCREENS.map(([to, name, icon]) => {
    const here = path === to || path.startsWith(`${to}/`);
    const more = to === "/approvals" && counted !== 0 && counted !== null ? html`<span class="count" aria-label=${`${counted} pending`}>${counted}</span>` : to === "/monitor" && violations.value ? html`<span class="count bad" aria-label=${`${violations.value} violations`}>${violations.value}</span>` : null;
    return html`<li key=${to}><a href=${url(to)} aria-current=${here ? "page" : undefined}><${Icon} name=${icon} /><span>${name}</span>${more}</a></li>`;
  })}</ul></nav>`;
}

/** @type {Map<any, any>} */
const loaded = new Map();

function View() {
  const { path } = place.value;
  const found = VIEWS.map(([pattern, load]) => ({ match: pattern.exec(path), load })).find(({ match }) => match);
  const [, drawn] = useState(0);
  const [problem, failed] = useState(/** @type {any} */ (null));
  const load = found?.load;
  useEffect(() => {
    if (path === "/" || path === "") go("/runs", { replace: true });
  }, [path]);
  useEffect(() => {
    if (!load || loaded.has(load)) return;
    load().then((module) => {
      loaded.set(load, module.default);
      drawn((n) => n + 1);
    }, () => failed({ status: -1, message: "A part of the page could not be loaded. Is the console still running?" }));
  }, [load]);
  if (!found) return path === "/" || path === "" ? null : html`<${Empty} title="There is no such screen" first><p><a href=${url("/runs")}>All runs</a></p><//>`;
  if (problem) return html`<${Failed} problem=${problem} retry=${() => location.reload()} />`;
  const Screen = loaded.get(load);
  if (!Screen) return html`<${Skeleton} />`;
  const params = Object.fromEntries(Object.entries(found.match?.groups ?? {}).map(([name, value]) => [name, value === undefined ? undefined : decodeURIComponent(value)]));
  return html`<${Guard} key=${path}><${Screen} ...${params} /><//>`;
}

function Help() {
  return html`<${Dialog} title="Keys" onClose=${() => (helpShown.value = false)}><table class="keys"><tbody>${HELP.map(([key, what]) => html`<tr key=${key}><th scope="row"><kbd>${key}</kbd></th><td>${what}</td></tr>`)}</tbody></table><p class="dim">Single keys can be turned off in <a href=${url("/settings")} onClick=${() => (helpShown.value = false)}>Settings</a>.</p><//>`;
}

function Shell() {
  const main = useRef(/** @type {HTMLElement|null} */ (null));
  useKeys({ Escape: undefined });
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ e) => { e.preventDefault(); main.current?.focus(); }}>Skip to content</a>
    <${Header} /><div class="below"><${Navigation} /><main id="main" tabindex="-1" ref=${main}><${View} /></main></div>
    ${helpShown.value ? html`<${Help} />` : null}${paletteShown.value ? html`<${Palette} screens=${SCREENS} />` : null}`;
}

function App() {
  if (signedOut.value) return html`<${SignIn} />`;
  if (refused.value && !me.value) return html`<main class="sign-in"><${Failed} problem=${refused.value} retry=${begin} /></main>`;
  if (!me.value) return html`<main class="sign-in"><${Skeleton} lines=${3} /></main>`;
  return html`<${Shell} />`;
}

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#k=")) begin();
});
render(html`<${Guard}><${App} /><//><${Notes} /><${Confirmation} />`, document.body);
begin();
