// The union of what all tabs follow, as one event stream that is opened again where it ended when the union changes.

const EVENTS = ["run", "draft", "draft_reset", "list", "damage", "violation", "notice", "resync", "bye"];
const CHANGE_MS = 40;
const RETRY_MS = [500, 1000, 2000, 4000];

/** @typedef {{postMessage: (message: any) => void}} Port */

export class Topics {
  /** @param {string} address  of the stream */
  constructor(address) {
    this.address = address;
    /** @type {Map<Port, Set<string>>} */
    this.ports = new Map();
    /** Where each topic is. @type {Map<string, string>} */
    this.cursors = new Map();
    /** @type {EventSource|null} */
    this.source = null;
    this.state = { is: "idle", since: 0 };
    /** The last frame of topics whose frames hold all of them, for a tab that comes later. @type {Map<string, any>} */
    this.whole = new Map();
    /** Topics that are asked for again from their beginning. @type {Set<string>} */
    this.again = new Set();
    this.failed = 0;
    this.resting = false;
    this.opened = "";
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    this.timer = undefined;
  }

  /** Take a message of a tab. @param {Port} port @param {any} message */
  take(port, message) {
    const mine = this.ports.get(port) ?? new Set();
    this.ports.set(port, mine);
    if (message.gone) this.ports.delete(port);
    if (message.drop) mine.delete(message.drop);
    if (message.add) {
      mine.add(message.add);
      // A run is read from its beginning: a reader that was further knows the rows already, and takes none twice. A list goes
      // on from now, and has a place already if another tab follows it.
      const isRun = message.add.startsWith("run:");
      if (isRun || !this.cursors.has(message.add)) this.cursors.set(message.add, "");
      // Or from where it was read, for all tabs: a row that they have already stays the same.
      if (message.cursor && !isRun) this.cursors.set(message.add, message.cursor);
      if (isRun || message.cursor) this.again.add(message.add);
      if (this.whole.has(message.add)) port.postMessage({ frame: this.whole.get(message.add) });
    }
    const wanted = this.wanted();
    for (const topic of this.cursors.keys()) if (!wanted.includes(topic)) {
      this.cursors.delete(topic);
      this.whole.delete(topic);
    }
    this.later(CHANGE_MS);
    port.postMessage({ state: this.state });
  }

  /** Close while a tab is hidden, where it has a stream of its own. @param {boolean} resting */
  rest(resting) {
    this.resting = resting;
    this.opened = "";
    this.later(0);
  }

  wanted() {
    return [...new Set([...this.ports.values()].flatMap((set) => [...set]))].sort();
  }

  /** @param {number} ms */
  later(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), ms);
  }

  open() {
    const wanted = this.resting ? [] : this.wanted();
    const name = JSON.stringify(wanted);
    const more = wanted.some((topic) => this.again.has(topic));
    if (this.source && this.opened === name && !more) return;
    this.source?.close();
    this.source = null;
    this.opened = name;
    this.again.clear();
    if (!wanted.length) {
      this.become("idle");
      return;
    }
    const params = new URLSearchParams();
    for (const topic of wanted) params.append("t", this.cursors.get(topic) ? `${topic}@${this.cursors.get(topic)}` : topic);
    const source = new EventSource(`${this.address}?${params}`);
    this.source = source;
    source.onopen = () => {
      this.failed = 0;
      this.become("live");
    };
    source.onerror = () => {
      if (this.source !== source) return;
      source.close();
      this.source = null;
      if (this.state.is !== "log") this.become("reconnecting");
      this.later(RETRY_MS[Math.min(this.failed++, RETRY_MS.length - 1)]);
    };
    for (const event of EVENTS) source.addEventListener(event, (message) => this.source === source && this.hand(event, message));
  }

  /** @param {string} event @param {MessageEvent} message */
  hand(event, message) {
    const data = JSON.parse(message.data || "{}");
    if (event === "notice" && data.log) this.become(data.log === "lost" ? "log" : "live");
    for (const [topic, cursor] of cursorsIn(message.lastEventId)) if (this.cursors.has(topic) && !this.again.has(topic)) this.cursors.set(topic, cursor);
    if (data.whole || event === "violation") this.whole.set(data.topic, { event, data });
    for (const [port, topics] of this.ports) if (!data.topic || topics.has(data.topic)) port.postMessage({ frame: { event, data } });
  }

  /** @param {string} is */
  become(is) {
    if (this.state.is === is) return;
    this.state = { is, since: Date.now() / 1000 };
    this.tell(this.ports.keys());
  }

  /** @param {Iterable<Port>} ports */
  tell(ports) {
    for (const port of ports) port.postMessage({ state: this.state });
  }
}

/** The places of topics in the id of a frame. @param {string} id @returns {[string, string][]} */
function cursorsIn(id) {
  return id ? [...new URLSearchParams(id)] : [];
}
