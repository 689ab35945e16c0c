// Holds the one stream of the browser for all of its tabs.
import { Topics } from "./topics.js";

const topics = new Topics(/** @type {any} */ (self).name);
/** @type {any} */ (self).onconnect = (/** @type {MessageEvent} */ { ports: [port] }) => {
  port.onmessage = ({ data }) => topics.take(port, data);
};
