// The draft tree of one round: depth to the right, branches below each other.

import { fates } from "./rounds.js";
import { make, picture } from "./svg.js";

const COLUMN = 104, ROW = 30, BOX = 88, HEIGHT = 22, MARGIN = 12;

/** Return the picture of a round's draft and of what the target added. */
export function tree(round) {
  const { parents, texts, kept } = round.draft;
  const end = kept.length ? kept[kept.length - 1] : -1;
  const own = round.tokens.slice(kept.length);
  const nodes = texts.map((text, at) => ({ text, parent: parents[at] }));
  fates(round).forEach((fate, at) => { nodes[at].kind = fate; });
  own.forEach((token, at) => {
    const parent = at === 0 ? end : nodes.length - 1;
    nodes.push({ text: token.text, parent, kind: token.origin });
  });
  place(nodes);
  const width = MARGIN * 2 + COLUMN * Math.max(1, ...nodes.map((node) => node.depth));
  const rows = Math.max(1, ...nodes.map((node) => node.row + 1));
  const label = `Draft of ${texts.length} tokens, ${kept.length} kept`;
  const svg = picture(width, MARGIN * 2 + ROW * rows, label);
  nodes.forEach((node) => svg.append(edge(node, nodes[node.parent])));
  nodes.forEach((node) => svg.append(box(node)));
  return svg;
}

/** Give each node its depth, and the row of the first leaf below it. */
function place(nodes) {
  const children = nodes.map(() => []);
  const roots = [];
  nodes.forEach((node, at) => (node.parent < 0 ? roots : children[node.parent]).push(at));
  let row = 0;
  const waiting = roots.reverse().map((at) => [at, 1]);
  while (waiting.length) {
    const [at, depth] = waiting.pop();
    Object.assign(nodes[at], { depth, row });
    if (!children[at].length) row += 1;
    for (const child of children[at].reverse()) waiting.push([child, depth + 1]);
  }
}

const left = (node) => MARGIN + (node.depth - 1) * COLUMN;
const middle = (node) => MARGIN + node.row * ROW + ROW / 2;

function edge(node, parent) {
  if (!parent) return "";
  const from = left(parent) + BOX, to = left(node), bend = (from + to) / 2;
  const d = `M${from} ${middle(parent)}C${bend} ${middle(parent)} ${bend} ${middle(node)} ${to} ${middle(node)}`;
  return make("path", { d, class: `edge ${node.kind === "rejected" ? "" : node.kind}` });
}

function box(node) {
  const x = left(node), y = middle(node) - HEIGHT / 2;
  const shown = node.text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "·") || "∅";
  const cut = [...shown].length > 10 ? [...shown].slice(0, 9).join("") + "…" : shown;
  return make("g", { class: `node ${node.kind}` },
    make("title", {}, `${JSON.stringify(node.text)}: ${node.kind}`),
    make("rect", { x, y, width: BOX, height: HEIGHT, rx: 5 }),
    make("text", { x: x + 7, y: y + 15 }, cut));
}
