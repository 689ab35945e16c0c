// The one field of filters: `status:paused agent:refunds since:2h "order 17"`, and what the API calls them.
import { parseSpan } from "./text.js";

/** What may be before a colon, and the parameter that it is. */
export const NAMES = /** @type {Record<string, string>} */ ({
  status: "status",
  agent: "agent",
  kind: "kind",
  session: "session",
  user: "user",
  executor: "executor",
  worker: "worker",
  waiting: "waiting_for",
  error: "error_type",
  model: "model",
  root: "root",
  parent: "parent",
  fork: "forked_from",
  job: "job",
  since: "from",
  until: "to",
  children: "children",
  forks: "forks",
  damaged: "damaged",
});

/** @typedef {{name: string, value: string}} Token  `name` is empty for words to look for */

/** @param {string} text @returns {Token[]} */
export function tokens(text) {
  const found = [];
  for (const match of text.matchAll(/(?:([a-z_]+):)?(?:"([^"]*)"|(\S+))/g)) {
    const value = match[2] ?? match[3];
    if (match[1] && match[1] in NAMES) found.push({ name: match[1], value });
    else found.push({ name: "", value: match[1] ? `${match[1]}:${value}` : value });
  }
  return found;
}

/** @param {Token[]} all */
export function written(all) {
  return all.map(({ name, value }) => `${name ? `${name}:` : ""}${/[\s"]/.test(value) || value === "" ? `"${value.replaceAll('"', "")}"` : value}`).join(" ");
}

/** The parameters of the API for a text of filters. @param {string} text @returns {Record<string, string|number>} */
export function parameters(text) {
  /** @type {Record<string, string|number>} */
  const given = { children: "0", forks: "0" };
  const words = [];
  for (const { name, value } of tokens(text)) {
    if (!name) words.push(value);
    else if (name === "since" || name === "until") {
      const seconds = parseSpan(value), at = seconds === null ? Date.parse(value) / 1000 : Math.floor(Date.now() / 1000 - seconds);
      if (!Number.isNaN(at)) given[NAMES[name]] = at;
    } else if (["children", "forks", "damaged"].includes(name)) given[name] = /^(1|yes|true)$/.test(value) ? "1" : "0";
    else given[NAMES[name]] = value;
  }
  if ("parent" in given || "root" in given) given.children = "1";
  if (given.damaged === "1") given.children = given.forks = "1";
  // Of what a run, a family or a job has, nothing is left out.
  if (["forked_from", "parent", "root", "job"].some((name) => name in given)) given.forks = "1";
  if (words.length) given.q = words.join(" ");
  return given;
}

/** The text with a filter set, or removed by null. @param {string} text @param {string} name @param {string|null} value */
export function withFilter(text, name, value) {
  const others = tokens(text).filter((token) => token.name !== name);
  return written(value === null ? others : [...others, { name, value }]);
}
