// Drafter and verifier on one clock: what each did when, round after round.

import { endOf } from "./rounds.js";
import { make, picture } from "./svg.js";

const SHOWN = 16, LEFT = 74, LANE = 30, BAR = 16;

/** Return the picture of the last rounds, plain decoding's below if there is a race. */
export function clock(rounds, plain, selected, choose, width) {
  const shown = rounds.slice(-SHOWN);
  const lanes = plain ? ["drafting", "verifying", "plain"] : ["drafting", "verifying"];
  const height = lanes.length * LANE + 24;
  const svg = picture(width, height, "Time of drafting and verifying");
  lanes.forEach((name, at) => svg.append(make("text", { x: 0, y: at * LANE + 19 }, name)));
  if (!shown.length) return svg;
  const from = Math.min(shown[0].began_s, ...shown.map((round) => round.began_s - ahead(round)));
  const until = Math.max(endOf(shown[shown.length - 1]), from + 1e-6);
  const x = (s) => LEFT + ((s - from) / (until - from)) * (width - LEFT - 4);
  const bar = (lane, kind, begin, end, round) => {
    if (end <= begin || end <= from) return;
    const start = x(Math.max(begin, from));
    const cls = `bar ${kind}${round === selected ? " selected" : ""}`;
    const place = { x: start, y: lane * LANE + 7, width: Math.max(0.5, x(Math.min(end, until)) - start) };
    svg.append(make("rect", { ...place, height: BAR, class: cls }));
  };
  for (const round of shown) {
    const ready = round.began_s + round.draft_wait_s;
    if (round.source === "drafter") {
      if (ahead(round)) {
        bar(0, "ahead", round.began_s - ahead(round), round.began_s, round);
      } else {
        bar(0, "wire", round.began_s, ready, round);
        bar(0, "draft", ready - Math.min(round.drafter_s, round.draft_wait_s), ready, round);
      }
    }
    verified(bar, 1, round, ready);
    const begin = x(round.began_s);
    const hit = make("rect", { x: begin, y: 0, width: Math.max(1, x(endOf(round)) - begin), height: LANE * 2, class: "hit" });
    hit.append(make("title", {}, `round ${round.round}: ${ms(endOf(round) - round.began_s)}`));
    hit.addEventListener("click", () => choose(round));
    svg.append(hit);
  }
  for (const round of plain ?? []) {
    if (endOf(round) >= from && round.began_s <= until) verified(bar, 2, round, round.began_s);
  }
  const base = lanes.length * LANE + 2;
  svg.append(make("line", { x1: LEFT, x2: width, y1: base, y2: base, class: "axis" }));
  for (const [at, anchor] of [[from, "start"], [until, "end"]]) {
    svg.append(make("text", { x: x(at), y: base + 16, "text-anchor": anchor }, ms(at)));
  }
  return svg;
}

/** How long a draft was made before its round began; 0 if the round waited for it. */
function ahead(round) {
  return round.source === "drafter" && round.draft_wait_s < round.drafter_s ? round.drafter_s : 0;
}

function verified(bar, lane, round, began) {
  const pass = began + round.verifier_queue_s;
  bar(lane, "wire", began, endOf(round), round);
  bar(lane, "verify", pass, Math.min(pass + round.verifier_s, endOf(round)), round);
}

const ms = (s) => `${(1e3 * s).toFixed(1)} ms`;
