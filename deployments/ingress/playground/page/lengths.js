// How long drafts were, what of them was verified and kept, and what one more row cost.

import { make, picture } from "./svg.js";

const SHOWN = 64, LEFT = 30, RIGHT = 58, TOP = 14, HEIGHT = 118;

/** Return the picture of the last rounds' lengths and prices. */
export function lengths(rounds, selected, choose, width) {
  const shown = rounds.slice(-SHOWN);
  const svg = picture(width, TOP + HEIGHT + 10, "Draft lengths and the price of a row");
  const most = Math.max(4, ...shown.map((round) => round.draft.tokens.length));
  // The first rounds go by a price that is not learnt yet: they may leave the picture.
  const prices = shown.map((round) => round.price.row_s).sort((a, b) => a - b);
  const dearest = Math.max(1e-9, 2 * (prices[Math.floor(prices.length / 2)] ?? 0));
  const step = (width - LEFT - RIGHT) / Math.max(shown.length, 24);
  const y = (share) => TOP + HEIGHT * (1 - share);
  const points = [];
  shown.forEach((round, at) => {
    const x = LEFT + at * step;
    const column = (kind, count) => svg.append(make("rect", {
      x: x + step * 0.15, width: step * 0.7, y: y(count / most), height: HEIGHT * (count / most),
      class: `bar ${kind}${round === selected && kind === "kept" ? " selected" : ""}`,
    }));
    column("offered", round.draft.tokens.length);
    column("bought", round.bought);
    column("kept", round.draft.kept.length);
    if (round.price.row_s > 0) points.push(`${x + step / 2},${y(Math.min(1, round.price.row_s / dearest))}`);
    const hit = make("rect", { x, y: TOP, width: step, height: HEIGHT, class: "hit" });
    hit.append(make("title", {}, `round ${round.round}: k ${round.k}, ${round.reason}`));
    hit.addEventListener("click", () => choose(round));
    svg.append(hit);
  });
  svg.append(make("polyline", { points: points.join(" "), class: "line price" }));
  svg.append(make("line", { x1: LEFT, x2: width - RIGHT, y1: y(0), y2: y(0), class: "axis" }));
  svg.append(make("text", { x: LEFT - 6, y: y(1) + 8, "text-anchor": "end" }, String(most)));
  svg.append(make("text", { x: LEFT - 6, y: y(0), "text-anchor": "end" }, "0"));
  const price = points.length ? `${(1e6 * dearest).toFixed(0)} µs` : "";
  svg.append(make("text", { x: width - RIGHT + 6, y: y(1) + 8 }, price));
  return svg;
}
