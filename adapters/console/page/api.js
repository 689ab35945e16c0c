// Requests to the API of this server, and nowhere else. Errors are `Problem`, with what the server said.

/** The path that the page is served at, with a slash at its end: its files are in a folder of it, by their version. */
export const BASE = new URL("../", import.meta.url).pathname;
const API = `${BASE}api/v1`;

/** An answer that is no success: what, why, and the id of the request. */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} body */
  constructor(status, body) {
    super(body.detail || body.title || `status ${status}`);
    this.status = status;
    this.title = body.title ?? "";
    this.error = body.error ?? "";
    this.requestId = body.request_id ?? "";
    this.body = body;
  }
}

/** @type {(problem: Problem) => void} */
let onSignedOut = () => {};
/** Name what is called when the server no longer knows who we are. @param {(problem: Problem) => void} then */
export function whenSignedOut(then) {
  onSignedOut = then;
}

/** @param {string} method @param {string} path @param {any} [body] @param {{key?: string, signal?: AbortSignal, raw?: string}} [more] */
async function request(method, path, body, more = {}) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = more.raw ?? "application/json";
  if (more.key) headers["Idempotency-Key"] = more.key;
  let response;
  try {
    response = await fetch(API + path, {
      method,
      headers,
      body: body === undefined ? undefined : more.raw ? body : JSON.stringify(body),
      credentials: "same-origin",
      cache: method === "GET" ? "no-cache" : "no-store",
      signal: more.signal,
    });
  } catch (error) {
    if (/** @type {Error} */ (error).name === "AbortError") throw error;
    throw new Problem(0, { title: "Not reached", detail: "The console's server did not answer. Is it still running?" });
  }
  if (response.status === 204) return null;
  const text = await response.text();
  let answer;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    throw new Problem(response.status, { title: "Not understood", detail: "The answer is not JSON: is there a proxy in between?" });
  }
  if (!response.ok) {
    const problem = new Problem(response.status, answer ?? {});
    if (response.status === 401 && path !== "/session") onSignedOut(problem);
    throw problem;
  }
  return answer;
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = (path, signal) => request("GET", path, undefined, { signal });
const LATE_MS = 2000;
/** The keys of what was sent and is not answered, by what it asks: asked again, it is the same intent. @type {Map<string, string>} */
const unanswered = new Map();

/** @type {() => () => void} */
let onLate = () => () => {};
/** Name what is called when an action has had no answer for two seconds; it returns what is called once that is over. @param {() => () => void} then */
export function whenLate(then) {
  onLate = then;
}

/** Ask for something. With a key it is done once: if its answer is lost, the same request again has the same key.
 * @param {string} path @param {any} [body] @param {{key?: string}} [more] @returns {Promise<any>} */
export async function post(path, body = {}, more = {}) {
  if (!more.key) return request("POST", path, body);
  const asked = `${path} ${JSON.stringify(body)}`, key = unanswered.get(asked) ?? more.key;
  unanswered.set(asked, key);
  let over = () => {};
  const late = setTimeout(() => {
    over = onLate();
  }, LATE_MS);
  try {
    const answer = await request("POST", path, body, { key });
    unanswered.delete(asked);
    return answer;
  } catch (problem) {
    const { status } = /** @type {Problem} */ (problem);
    if (status === 0) throw new Problem(0, { title: "Not answered", detail: "Sent, not seen yet: the console's server did not answer. Do it again: it is done once." });
    if (status < 500) unanswered.delete(asked);
    throw problem;
  } finally {
    clearTimeout(late);
    over();
  }
}

/** Save the answer to a question as a file. @param {string} path @param {any} body @param {string} name */
export async function download(path, body, name) {
  const response = await fetch(API + path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), credentials: "same-origin" });
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
  const address = URL.createObjectURL(await response.blob());
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** @param {string} path @param {any} [body] @returns {Promise<any>} */
export const patch = (path, body = {}) => request("PATCH", path, body);
/** @param {string} path @returns {Promise<any>} */
export const remove = (path) => request("DELETE", path);
/** The address of something that the browser downloads. @param {string} path */
export const address = (path) => API + path;

/** A path of one segment each, escaped. @param {string[]} parts */
export function at(...parts) {
  return parts.map((part) => `/${encodeURIComponent(part)}`).join("");
}

/** A query of what is set. @param {Record<string, any>} given */
export function query(given) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    params.append(name, value === true ? "1" : String(value));
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

/** An id for one intent of a person, so that a click that is sent twice acts once. */
export function newKey() {
  return crypto.randomUUID ? crypto.randomUUID() : [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
}
