// Time on the timeline: long stretches in which nothing happens are folded to a break of a fixed width.

const BREAK_S = 60;
const BREAK_GAPS = 10;
const BREAK_SHARE = 0.06;
const BREAK_WIDTH = 0.035;

/** @typedef {{from: number, to: number, at: number, width: number, folded: boolean}} Piece  times, and the place on the scale */

/** The pieces of a scale over sorted times. @param {number[]} times @returns {Piece[]} */
export function pieces(times) {
  if (!times.length) return [{ from: 0, to: 1, at: 0, width: 1, folded: false }];
  const first = times[0], last = Math.max(times[times.length - 1], first + 0.001);
  const gaps = [];
  for (let n = 1; n < times.length; n++) if (times[n] > times[n - 1]) gaps.push(times[n] - times[n - 1]);
  const median = gaps.length ? gaps.slice().sort((a, b) => a - b)[gaps.length >> 1] : 0;
  const isLong = (/** @type {number} */ gap) => gap > BREAK_S || (gap > 1 && gap > BREAK_GAPS * median && gap > BREAK_SHARE * (last - first));
  let busy = last - first;
  const long = [];
  for (let n = 1; n < times.length; n++) {
    if (isLong(times[n] - times[n - 1])) {
      long.push([times[n - 1], times[n]]);
      busy -= times[n] - times[n - 1];
    }
  }
  busy = Math.max(busy, (last - first) * 1e-4, 1e-3);
  const width = busy * BREAK_WIDTH, margin = busy * 0.004;
  /** @type {Piece[]} */
  const found = [];
  let from = first, at = 0;
  const add = (/** @type {number} */ to, /** @type {boolean} */ folded) => {
    if (to <= from) return;
    const wide = folded ? width : Math.max(to - from, 1e-9);
    found.push({ from, to, at, width: wide, folded });
    at += wide;
    from = to;
  };
  for (const [a, b] of long) {
    add(Math.min(a + margin, b), false);
    add(Math.max(b - margin, a + margin), true);
  }
  add(last, false);
  return found;
}

export class Scale {
  /** @param {number[]} times sorted */
  constructor(times) {
    this.pieces = pieces(times);
    const last = this.pieces[this.pieces.length - 1];
    this.length = last.at + last.width;
  }

  /** The place of a time. @param {number} t */
  place(t) {
    const piece = this.pieces[this.find(t, "from")];
    return piece.at + ((t - piece.from) / (piece.to - piece.from)) * piece.width;
  }

  /** The time at a place. @param {number} at */
  time(at) {
    const piece = this.pieces[this.find(at, "at")];
    return piece.from + ((at - piece.at) / piece.width) * (piece.to - piece.from);
  }

  /** @param {number} value @param {"from"|"at"} by */
  find(value, by) {
    let low = 0, high = this.pieces.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.pieces[middle][by] <= value) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}
