// The timeline, drawn on a canvas: workers, the run, its steps, model calls, tool calls and children, over time.
import { Scale } from "./scale.js";
import { clock, count, moment, oneLine, span } from "../text.js";

const LANES = [["worker", "Workers"], ["run", "Run"], ["step", "Steps"], ["model", "Model"], ["tool", "Tools"], ["child", "Children"]];
const ROW = 22, GAP = 10, AXIS = 24, MAP = 22, ROWS_MOST = 12, LABEL = 46;
const FONT = '12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';

/** @typedef {{id: string, lane: string, name: string, start: number, end: number|null, state: string, detail: string, revision: number|null, run: string, row?: number}} Bar */

/** A bar of the server, by the names used here. @param {any} bar @returns {Bar} */
function known(bar) {
  return { id: bar.id, lane: bar.lane, name: bar.name ?? "", start: bar.start, end: bar.end ?? null, state: bar.state ?? "", detail: bar.detail ?? "", revision: bar.revision ?? null, run: bar.run_id ?? "" };
}

export class Timeline {
  /** @param {HTMLCanvasElement} canvas @param {import("./feed.js").Feed} feed @param {{utc: () => boolean, choose: (bar: any) => void, tell: (text: string, x: number, y: number) => void}} ways */
  constructor(canvas, feed, ways) {
    this.canvas = canvas;
    this.feed = feed;
    this.ways = ways;
    this.from = 0;
    this.to = 1; // shares of the scale
    this.scale = new Scale([]);
    /** @type {{label: string, lane: string, y: number, bars: Bar[][]}[]} */
    this.lanes = [];
    this.height = 120;
    this.width = canvas.clientWidth;
    this.revisionAt = /** @type {number|null} */ (null);
    this.requested = 0;
    this.drawnIn = 0;
    /** @type {{x: number, y: number, w: number, bar: Bar, merged: number}[]} */
    this.hits = [];
    /** @type {Map<number, PointerEvent>} */
    this.pointers = new Map();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(canvas);
    this.listen();
  }

  end() {
    this.observer.disconnect();
    cancelAnimationFrame(this.requested);
  }

  draw() {
    if (this.requested) return;
    this.requested = requestAnimationFrame(() => {
      this.requested = 0;
      const began = performance.now();
      this.layout();
      this.paint();
      this.drawnIn = performance.now() - began;
      this.canvas.dataset.drawn = this.drawnIn.toFixed(1);
      this.canvas.dataset.bars = String(this.feed.bars.size);
    });
  }

  layout() {
    this.width = this.canvas.clientWidth; // asked for once: each time, the browser lays the page out first
    const { rows, bars } = this.feed;
    const times = new Array(rows.length);
    let ordered = true;
    for (let n = 0; n < rows.length; n++) {
      times[n] = rows[n].at;
      if (n && times[n] < times[n - 1]) ordered = false;
    }
    if (!ordered) times.sort((a, b) => a - b);
    const open = !this.feed.detail.value?.row.ended_at;
    this.now = open ? Date.now() / 1000 : times[times.length - 1] ?? 0;
    if (open && times.length) times.push(Math.max(this.now, times[times.length - 1]));
    this.scale = new Scale(times);
    this.first = times[0] ?? 0;
    this.last = times[times.length - 1] ?? 1;
    /** @type {Record<string, Bar[]>} */
    const byLane = Object.fromEntries(LANES.map(([lane]) => [lane, []]));
    for (const each of bars.values()) if (each.run_id === this.feed.id) byLane[each.lane]?.push(known(each)); // what is below is a bar of its own
    this.lanes = [];
    let y = AXIS + 6;
    for (const [lane, label] of LANES) {
      const all = byLane[lane];
      if (!all.length) continue;
      all.sort((a, b) => a.start - b.start);
      /** @type {Bar[][]} */
      const packed = [];
      /** @type {number[]} */
      const free = [];
      for (const bar of all) {
        const end = bar.end ?? this.last;
        let n = free.findIndex((until) => until <= bar.start + 1e-6);
        if (n < 0) n = free.length < ROWS_MOST ? free.length : free.indexOf(Math.min(...free));
        free[n] = Math.max(free[n] ?? 0, end);
        (packed[n] ??= []).push(bar);
      }
      this.lanes.push({ lane, label, y, bars: packed });
      y += packed.length * ROW + GAP;
    }
    this.height = y + MAP + 4;
    if (this.canvas.style.height !== `${this.height}px`) this.canvas.style.height = `${this.height}px`;
  }

  get gutter() {
    return this.width < 560 ? 0 : 74;
  }

  /** @param {number} t */
  x(t) {
    const width = this.width - this.gutter - 8;
    return this.gutter + ((this.scale.place(t) / this.scale.length - this.from) / (this.to - this.from)) * width;
  }

  /** @param {number} x */
  share(x) {
    const width = this.width - this.gutter - 8;
    return this.from + ((x - this.gutter) / width) * (this.to - this.from);
  }

  paint() {
    const { canvas, width } = this, height = this.height, ratio = devicePixelRatio || 1;
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const css = getComputedStyle(canvas), colour = (/** @type {string} */ name) => css.getPropertyValue(name).trim();
    this.colours = { text: colour("--text"), dim: colour("--dim"), line: colour("--line"), bg: colour("--bg"), panel: colour("--panel"), bad: colour("--bad"), ask: colour("--ask"), accent: colour("--accent"), onBar: colour("--on-bar"), worker: colour("--c-worker"), run: colour("--c-run"), step: colour("--c-step"), model: colour("--c-model"), tool: colour("--c-tool"), child: colour("--c-child") };
    const c = this.colours;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = FONT;
    g.textBaseline = "middle";
    this.hits = [];
    this.axis(g, width);
    g.save();
    g.beginPath();
    g.rect(this.gutter, AXIS, width - this.gutter, height);
    g.clip();
    for (const lane of this.lanes) lane.bars.forEach((bars, n) => this.row(g, lane, bars, lane.y + n * ROW));
    g.restore();
    for (const lane of this.lanes) {
      g.fillStyle = c.dim;
      if (this.gutter) g.fillText(lane.label, 4, lane.y + ROW / 2);
    }
    this.mark(g, height);
    this.map(g, width, height - MAP);
  }

  /** @param {CanvasRenderingContext2D} g @param {number} width */
  axis(g, width) {
    const c = /** @type {any} */ (this.colours), utc = this.ways.utc();
    g.strokeStyle = c.line;
    g.fillStyle = c.dim;
    g.lineWidth = 1;
    let taken = this.gutter;
    /** Where the lengths of breaks are written. @type {[number, number][]} */
    const told = [];
    for (const piece of this.scale.pieces) {
      const a = this.x(piece.from), b = this.x(piece.to);
      if (piece.folded && b >= this.gutter && a <= width) told.push(this.fold(g, a, b, piece));
    }
    for (const piece of this.scale.pieces) {
      const a = this.x(piece.from), b = this.x(piece.to);
      if (b < this.gutter || a > width || piece.folded) continue;
      const pixels = b - a, seconds = piece.to - piece.from;
      const step = nice((seconds * 96) / Math.max(pixels, 1));
      const begin = Math.ceil((Math.max(piece.from, this.scale.time(Math.max(0, this.from) * this.scale.length)) - this.first) / step - 1e-9);
      for (let n = Math.max(0, begin); ; n++) {
        const t = /** @type {number} */ (this.first) + n * step, x = this.x(t);
        if (t > piece.to || x > width - 30) break;
        if (x < this.gutter - 1) continue;
        g.beginPath();
        g.moveTo(x + 0.5, 17);
        g.lineTo(x + 0.5, this.height - MAP - 6);
        g.globalAlpha = 0.55;
        g.stroke();
        g.globalAlpha = 1;
        const text = seconds > 600 || n * step > 3600 ? clock(t, utc) : n === 0 ? clock(t, utc) : `+${span(n * step)}`;
        const end = x + g.measureText(text).width + 14;
        if (x < taken || told.some(([from, to]) => x < to && end > from)) continue;
        g.fillText(text, x + 3, 9);
        taken = end;
      }
    }
  }

  /** A break: nothing happened here, for so long. Returns where that is written.
   * @param {CanvasRenderingContext2D} g @param {number} a @param {number} b @param {import("./scale.js").Piece} piece @returns {[number, number]} */
  fold(g, a, b, piece) {
    const c = /** @type {any} */ (this.colours), bottom = this.height - MAP - 6;
    g.save();
    g.beginPath();
    g.rect(a, AXIS - 4, b - a, bottom - AXIS + 4);
    g.clip();
    g.strokeStyle = c.line;
    for (let x = a - bottom; x < b; x += 7) {
      g.beginPath();
      g.moveTo(x, bottom);
      g.lineTo(x + bottom, 0);
      g.stroke();
    }
    g.restore();
    g.setLineDash([2, 3]);
    for (const x of [a, b]) {
      g.beginPath();
      g.moveTo(x, AXIS - 4);
      g.lineTo(x, bottom);
      g.stroke();
    }
    g.setLineDash([]);
    const text = `⋯ ${span(piece.to - piece.from)}`, wide = g.measureText(text).width;
    const left = Math.max(this.gutter, Math.min((a + b) / 2 - wide / 2, this.width - wide - 4));
    g.fillStyle = c.ask;
    g.fillText(text, left, 9);
    g.fillStyle = c.dim;
    return [left - 4, left + wide + 4];
  }

  /** @param {CanvasRenderingContext2D} g @param {{lane: string}} lane @param {Bar[]} bars @param {number} y */
  row(g, lane, bars, y) {
    const c = /** @type {any} */ (this.colours), right = this.width, tall = ROW - 4;
    let until = -1, merged = 0;
    /** The bar before, if its worker was lost. @type {Bar|null} */
    let lost = null;
    for (const bar of bars) {
      if (lost) this.gap(g, lost, bar, y + tall / 2 + 0.5);
      lost = bar.state === "lost" ? bar : null;
      const end = bar.end ?? /** @type {number} */ (this.last);
      const a = this.x(bar.start), b = Math.max(this.x(end), a + 1.5);
      if (b < this.gutter || a > right) continue;
      if (b - a < 2.5 && a < until + 0.5) {
        // Below a pixel: drawn once, and counted.
        merged++;
        if (b > until) {
          g.fillStyle = c[lane.lane];
          g.fillRect(until, y, b - until, tall);
          until = b;
        }
        const hit = this.hits[this.hits.length - 1];
        if (hit && hit.y === y) {
          hit.merged = merged;
          hit.w = until - hit.x;
        }
        continue;
      }
      merged = 0;
      this.bar(g, lane.lane, bar, a, b, y, tall);
      until = b;
      this.hits.push({ x: a, y, w: b - a, bar, merged: 0 });
    }
  }

  /** How long nobody was there, between a lost worker and the next one.
   * @param {CanvasRenderingContext2D} g @param {Bar} lost @param {Bar} next @param {number} y */
  gap(g, lost, next, y) {
    const a = this.x(lost.end ?? next.start), b = this.x(next.start);
    const text = [`lost, taken over ${span(next.start - (lost.end ?? next.start))} later`, span(next.start - (lost.end ?? next.start))].find((each) => g.measureText(each).width + 12 < b - a);
    if (!text) return;
    g.fillStyle = /** @type {any} */ (this.colours).dim;
    g.fillText(text, (a + b - g.measureText(text).width) / 2, y);
  }

  /** @param {CanvasRenderingContext2D} g @param {string} lane @param {Bar} bar @param {number} a @param {number} b @param {number} y @param {number} tall */
  bar(g, lane, bar, a, b, y, tall) {
    const c = /** @type {any} */ (this.colours);
    const bad = /^(failed|error|lost|cancelled)$/.test(bar.state), waits = /^(paused|waiting|queued|parked|approval)$/.test(bar.state);
    const fill = bad && bar.state !== "lost" ? c.bad : waits ? c.ask : c[lane];
    const wide = b - a;
    g.fillStyle = fill;
    g.globalAlpha = bar.end === null && !waits ? 0.75 : 1;
    if (waits) {
      g.globalAlpha = 0.16;
      g.fillRect(a, y, wide, tall);
      g.globalAlpha = 1;
      hatch(g, fill, a, y, wide, tall, 6);
      g.strokeStyle = fill;
      g.strokeRect(a + 0.5, y + 0.5, Math.max(0.5, wide - 1), tall - 1);
    } else if (bar.state === "lost") {
      // Its worker was lost: the edge is torn.
      g.beginPath();
      g.moveTo(a, y);
      for (let n = 0; n <= 4; n++) g.lineTo(b - (n % 2 ? Math.min(4, wide) : 0), y + (tall * n) / 4);
      g.lineTo(a, y + tall);
      g.fill();
    } else {
      g.beginPath();
      g.roundRect(a, y, wide, tall, Math.min(3, wide / 3));
      g.fill();
      if (bad) hatch(g, c.bg, a, y, wide, tall, 8);
    }
    g.globalAlpha = 1;
    if (wide > LABEL) {
      g.save();
      g.beginPath();
      g.rect(a, y, wide - 4, tall);
      g.clip();
      const left = Math.max(a, this.gutter) + 5, patterned = waits || (bad && bar.state !== "lost");
      const text = this.fitting(g, bar, `${bad ? "✕ " : ""}${oneLine(bar.name, 80)}`, b - left - 6);
      if (patterned) {
        // Over the pattern, text would be hard to read.
        g.fillStyle = c.bg;
        g.fillRect(left - 2, y + 2, g.measureText(text).width + 4, tall - 4);
      }
      g.fillStyle = !patterned ? c.onBar : bad ? c.bad : c.text;
      g.fillText(text, left, y + tall / 2 + 0.5);
      g.restore();
    }
  }

  /** What is written on a bar in so many pixels: its name with how long it took, the name, or its beginning.
   * @param {CanvasRenderingContext2D} g @param {Bar} bar @param {string} name @param {number} room */
  fitting(g, bar, name, room) {
    const whole = bar.end === null ? `${name} …` : `${name}  ${span(bar.end - bar.start)}`;
    for (const text of [whole, name]) if (g.measureText(text).width <= room) return text;
    const drawn = Math.floor((name.length * room) / g.measureText(name).width) - 1;
    return drawn > 0 ? `${name.slice(0, drawn)}…` : "";
  }

  /** The revision that is looked at. @param {CanvasRenderingContext2D} g @param {number} height */
  mark(g, height) {
    if (this.revisionAt === null) return;
    const x = this.x(this.revisionAt);
    if (x < this.gutter) return;
    g.strokeStyle = /** @type {any} */ (this.colours).accent;
    g.lineWidth = 2;
    g.beginPath();
    g.moveTo(x, 16);
    g.lineTo(x, height - MAP - 4);
    g.stroke();
    g.lineWidth = 1;
  }

  /** All of it, small, with the part that is shown. @param {CanvasRenderingContext2D} g @param {number} width @param {number} y */
  map(g, width, y) {
    const c = /** @type {any} */ (this.colours), wide = width - this.gutter - 8, k = wide / this.scale.length, tall = (MAP - 6) / Math.max(1, this.lanes.length);
    g.fillStyle = c.panel;
    g.fillRect(this.gutter, y, wide, MAP - 4);
    this.lanes.forEach((lane, n) => {
      g.fillStyle = c[lane.lane];
      g.globalAlpha = 0.75;
      let until = -1;
      for (const bars of lane.bars)
        for (const bar of bars) {
          const a = this.gutter + this.scale.place(bar.start) * k, b = Math.max(a + 1, this.gutter + this.scale.place(bar.end ?? /** @type {number} */ (this.last)) * k);
          if (b <= until) continue;
          g.fillRect(Math.max(a, until), y + 1 + n * tall, b - Math.max(a, until), Math.max(1, tall - 0.6));
          until = b;
        }
    });
    g.globalAlpha = 1;
    if (this.to - this.from < 0.999) {
      const a = this.gutter + this.from * wide, b = this.gutter + this.to * wide;
      g.strokeStyle = c.accent;
      g.lineWidth = 2;
      g.strokeRect(a, y, Math.max(3, b - a), MAP - 4);
      g.lineWidth = 1;
    }
  }

  /** @param {number} from @param {number} to */
  show(from, to) {
    const wide = Math.min(1, Math.max(to - from, 1e-6));
    this.from = Math.max(0, Math.min(from, 1 - wide));
    this.to = this.from + wide;
    this.draw();
  }

  /** @param {number} by @param {number} [around] a share */
  zoom(by, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * by, around + (this.to - around) * by);
  }

  all() {
    this.show(0, 1);
  }

  /** @param {number} by  shares of what is shown */
  pan(by) {
    const wide = (this.to - this.from) * by;
    this.show(this.from + wide, this.to + wide);
  }

  /** @param {number} x @param {number} y */
  under(x, y) {
    for (let n = this.hits.length - 1; n >= 0; n--) {
      const hit = this.hits[n];
      if (x >= hit.x - 2 && x <= hit.x + hit.w + 2 && y >= hit.y && y < hit.y + ROW) return hit;
    }
    return null;
  }

  listen() {
    const { canvas } = this;
    const place = (/** @type {MouseEvent} */ e) => {
      const box = canvas.getBoundingClientRect();
      return [e.clientX - box.left, e.clientY - box.top];
    };
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan(((e.deltaX || e.deltaY) / canvas.clientWidth) * 1.5);
      else this.zoom(Math.exp(Math.max(-60, Math.min(60, e.deltaY)) * 0.008), this.share(place(e)[0]));
    }, { passive: false });
    let began = [0, 0], kind = "", moved = false, spread = 0;
    canvas.addEventListener("pointerdown", (e) => {
      canvas.setPointerCapture(e.pointerId);
      this.pointers.set(e.pointerId, e);
      began = place(e);
      moved = false;
      kind = began[1] < AXIS ? "axis" : began[1] > this.height - MAP - 4 ? "map" : "pan";
      if (kind === "map") this.centre(began[0]);
      if (this.pointers.size === 2) spread = this.spread();
    });
    canvas.addEventListener("pointermove", (e) => {
      const [x, y] = place(e), before = this.pointers.get(e.pointerId);
      if (!before) {
        const hit = this.under(x, y);
        canvas.style.cursor = hit ? "pointer" : y < AXIS ? "col-resize" : "grab";
        this.ways.tell(hit ? this.told(hit) : "", x, y);
        return;
      }
      this.pointers.set(e.pointerId, e);
      if (this.pointers.size === 2) {
        const wide = this.spread();
        if (spread > 0 && wide > 0) this.zoom(spread / wide, this.share(x));
        spread = wide;
        moved = true;
        return;
      }
      if (Math.abs(x - began[0]) > 3) moved = true;
      if (kind === "pan" && moved) this.pan((before.clientX - e.clientX) / (canvas.clientWidth - this.gutter));
      if (kind === "map") this.centre(x);
    });
    const up = (/** @type {PointerEvent} */ e) => {
      if (!this.pointers.delete(e.pointerId)) return;
      const [x, y] = place(e);
      if (kind === "axis" && moved) {
        const a = this.share(Math.min(x, began[0])), b = this.share(Math.max(x, began[0]));
        if (b > a) this.show(a, b);
      } else if (!moved && kind === "pan" && e.type === "pointerup") {
        const hit = this.under(x, y);
        if (hit && hit.merged > 1) this.zoom(0.2, this.share(x));
        else if (hit) this.ways.choose(hit.bar);
      }
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => this.ways.tell("", 0, 0));
    canvas.addEventListener("dblclick", () => this.all());
  }

  spread() {
    const [a, b] = [...this.pointers.values()];
    return Math.abs(a.clientX - b.clientX);
  }

  /** @param {number} x */
  centre(x) {
    const at = (x - this.gutter) / (this.width - this.gutter - 8), wide = this.to - this.from;
    this.show(at - wide / 2, at + wide / 2);
  }

  /** @param {{bar: Bar, merged: number}} hit */
  told({ bar, merged }) {
    if (merged > 1) return `${count(merged + 1)} of ${bar.lane}, zoom in`;
    const state = bar.state ? `, ${bar.state}` : "";
    return `${oneLine(bar.name, 200)}${state}\n${moment(bar.start, this.ways.utc())}, ${bar.end === null ? "open" : `took ${span(bar.end - bar.start)}`}${bar.detail ? `\n${oneLine(bar.detail, 300)}` : ""}`;
  }
}

/** @param {CanvasRenderingContext2D} g @param {string} colour @param {number} x @param {number} y @param {number} w @param {number} h @param {number} step */
function hatch(g, colour, x, y, w, h, step) {
  if (w < 3) return;
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.strokeStyle = colour;
  g.lineWidth = 1.3;
  g.beginPath();
  const last = Math.min(x + w, g.canvas.width);
  for (let at = Math.max(x, -h) - h; at < last; at += step) {
    g.moveTo(at, y + h);
    g.lineTo(at + h, y);
  }
  g.stroke();
  g.restore();
  g.lineWidth = 1;
}

/** A step of an axis of at least so many seconds. @param {number} least */
function nice(least) {
  for (const step of [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400]) if (step >= least) return step;
  return Math.ceil(least / 86400) * 86400;
}
