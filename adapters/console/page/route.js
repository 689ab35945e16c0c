// Where the page is: the path and the query of the address, which hold the whole state of a view.
import { signal } from "./vendor/preact.js";
import { BASE } from "./api.js";

/** @typedef {{path: string, query: URLSearchParams}} Place */

/** @returns {Place} */
function current() {
  const path = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length - 1) : "/";
  return { path, query: new URLSearchParams(location.search) };
}

export const place = signal(current());
addEventListener("popstate", () => {
  place.value = current();
});

/** The address of a path of the page. @param {string} path */
export const url = (path) => BASE + path.replace(/^\//, "");

/** Go to a path. @param {string} path @param {{replace?: boolean}} [how] */
export function go(path, how = {}) {
  const to = url(path);
  if (to === location.pathname + location.search) return;
  if (how.replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  const before = place.value.path;
  place.value = current();
  if (!how.replace && before !== place.value.path) scrollTo(0, 0);
}

/** Change parameters of the query; null removes one. @param {Record<string, string|null>} change @param {{replace?: boolean}} [how] */
export function tune(change, how = { replace: true }) {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(change)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  go(place.value.path + (text ? `?${text}` : ""), how);
}

/** Follow links of the page without a load. @param {MouseEvent} event */
function onClick(event) {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
  if (link.origin !== location.origin || !link.pathname.startsWith(BASE) || link.pathname.startsWith(`${BASE}api/`)) return;
  if (link.hash && link.pathname === location.pathname) return;
  event.preventDefault();
  go(link.pathname.slice(BASE.length - 1) + link.search);
}
document.addEventListener("click", onClick);
