// One run as it grows: all of its rows and bars, from the stream. Views redraw at most once a frame.
import { batch, signal } from "../vendor/preact.js";
import { at, get } from "../api.js";
import { follow } from "../stream.js";
import { announce } from "../parts.js";
import { plural } from "../text.js";

const SEEN_MS = 2000, TURN_MS = 28, QUIET_MS = 150, REFRESH_MS = 2000;

/** What the server does not tell of a run whose log is damaged: its row and its rows are those before the damage. */
const UNTOLD = { totals: null, output: "", error: "", pending: null, why: null, owner: "", config: {}, fork: null, trace_id: "", children: [], forks: [] };

export class Feed {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** The answer of GET /runs/{run}. */
    this.detail = signal(/** @type {any} */ (null));
    this.error = signal(/** @type {any} */ (null));
    /** Damage of the log, found while it was read. */
    this.damage = signal(/** @type {any} */ (null));
    /** Changes with each frame of changes. */
    this.turn = signal(0);
    /** Rows of the timeline, in the order of the log. @type {any[]} */
    this.rows = [];
    /** Bars by their ids. @type {Map<string, any>} */
    this.bars = new Map();
    /** Text in the making, by step and channel. @type {Map<string, {step: number, attempt: number, channel: string, text: string}>} */
    this.drafts = new Map();
    /** The last revision of each run that was taken. @type {Map<string, number>} */
    this.reached = new Map();
    /** @type {Set<() => void>} */
    this.watchers = new Set();
    this.end = () => {};
    this.frame = 0;
    this.told = 0;
    this.later = 0;
    this.refreshed = 0;
    this.closed = false;
    /** The detail as the last frame of changes has left it, of which the views are not told yet. */
    this.newest = /** @type {any} */ (null);
    /** True once everything up to the head that the run had when it was opened is there. */
    this.complete = signal(false);
  }

  async open() {
    try {
      const detail = await get(`/runs${at(this.id)}`);
      if (this.closed) return;
      batch(() => {
        this.detail.value = detail;
        this.error.value = null;
      });
      this.follow();
    } catch (problem) {
      const { error } = /** @type {any} */ (problem);
      if (this.closed) return;
      if (error === "LogCorrupted") {
        this.damage.value = problem;
        this.follow(); // what is before the damage
      } else this.error.value = problem;
    }
  }

  follow() {
    this.end();
    this.end = follow(`run:${this.id}`, "", (frame) => this.take(frame));
  }

  close() {
    this.closed = true;
    this.end();
    clearTimeout(this.later);
  }

  changed() {
    if (this.frame || this.closed) return;
    const tell = () => {
      const now = performance.now();
      if (now - this.told < TURN_MS && !document.hidden) {
        this.frame = requestAnimationFrame(tell); // each other frame is as good to the eye, for half of the work
        return;
      }
      this.frame = 0;
      this.told = now;
      batch(() => {
        if (this.newest) this.detail.value = this.newest;
        this.newest = null;
        this.turn.value++;
      });
      for (const each of this.watchers) each();
    };
    // A hidden tab has no frames, and still has to count what comes.
    this.frame = document.hidden ? Number(setTimeout(tell, 100)) : requestAnimationFrame(tell);
  }

  /** @param {{event: string, data: any}} frame */
  take({ event, data }) {
    if (event === "resync") {
      this.rows = [];
      this.bars.clear();
      this.reached.clear();
      this.follow();
    } else if (event === "damage") {
      this.damage.value = { error: data.error, message: data.detail, body: data, status: 500 };
      this.complete.value = true;
    } else if (event === "run") {
      this.add(data);
    } else if (event === "draft" || event === "draft_reset") {
      this.draft(event, data);
    }
    this.changed();
  }

  /** @param {any} data */
  add({ rows, bars, head, why }) {
    let added = 0;
    for (const row of rows) {
      // Another tab may have asked for all of it again: what is here is not taken twice.
      if ((this.reached.get(row.run_id) ?? 0) >= row.revision) continue;
      this.reached.set(row.run_id, row.revision);
      this.rows.push(row);
      added++;
      if (row.run_id === this.id && /^(usage|model_failed|status)$/.test(row.type)) this.drafts.clear();
    }
    for (const bar of bars) this.bars.set(bar.id, bar);
    let detail = this.newest ?? this.detail.value ?? { ...UNTOLD, row: head, input: head.input };
    const known = detail.row.revision;
    if (head && head.revision >= known) detail = { ...detail, row: { ...detail.row, ...head } };
    if (why !== undefined) detail = { ...detail, why, pending: { ...detail.pending, why } };
    this.newest = detail;
    if ((this.reached.get(this.id) ?? 0) >= known) {
      if (this.complete.value && added) announce(plural(added, "new event"));
      this.complete.value = true;
    }
    if (head && head.revision > known) this.refreshSoon();
    // A run that is over changes no more, and its stream is let go. What is below it may still end.
    if (this.complete.value && detail.row.ended_at && !(detail.children ?? []).some((/** @type {any} */ child) => !child.ended_at)) {
      this.end();
      this.end = () => {};
    }
  }

  /** @param {string} event @param {any} data */
  draft(event, data) {
    if (data.run_id && data.run_id !== this.id) return;
    const name = `${data.step}.${data.channel}.${data.index ?? 0}`;
    const known = this.drafts.get(name), same = known?.attempt === data.attempt || event === "draft_reset";
    const text = same ? known?.text ?? "" : "";
    const offset = data.offset ?? text.length;
    this.drafts.set(name, { step: data.step, attempt: data.attempt, channel: data.channel, text: text.slice(0, offset) + (data.text ?? "") });
  }

  /** Read again what the frames do not carry, once changes pause; at the latest two seconds after the last time. */
  refreshSoon() {
    if (this.later && Date.now() - this.refreshed < REFRESH_MS) clearTimeout(this.later);
    else if (this.later) return;
    this.later = Number(setTimeout(() => this.refresh(), QUIET_MS));
  }

  /** Read again what the frames do not carry: what is pending, children, output. */
  async refresh() {
    clearTimeout(this.later);
    this.later = 0;
    this.refreshed = Date.now();
    const detail = await get(`/runs${at(this.id)}`).catch(() => null), known = this.newest ?? this.detail.value;
    if (!detail || this.closed) return;
    // While it changes, what was read is behind: its row is the older one.
    this.newest = null;
    this.detail.value = detail.row.revision >= known.row.revision ? detail : { ...detail, row: known.row, why: known.why };
  }

  /** Wait until the run has gone on past a revision, as the log says; false if it was not seen within two seconds.
   * @param {number} revision @returns {Promise<boolean>} */
  seen(revision) {
    const there = () => (this.detail.value?.row.revision ?? 0) > revision;
    if (there()) return Promise.resolve(true);
    return new Promise((then) => {
      let stop = () => {};
      const timer = setTimeout(async () => {
        await this.refresh();
        stop();
        then(there());
      }, SEEN_MS);
      stop = this.detail.subscribe(() => {
        if (!there()) return;
        clearTimeout(timer);
        queueMicrotask(() => stop());
        then(true);
      });
    });
  }
}
