// What the server says of a round, as values. Nothing here touches the page.

/** When a round ended, in seconds after its request. */
export function endOf(round) {
  return round.began_s + round.draft_wait_s + round.verify_s;
}

/** What became of each node of a round's draft: kept, rejected, or unbought (not verified). */
export function fates(round) {
  const kept = new Set(round.draft.kept);
  return round.draft.tokens.map((_, node) =>
    kept.has(node) ? "kept" : node < round.bought ? "rejected" : "unbought");
}

/** The texts that were drafted for the place of a round's token, and were not kept. */
export function rejectedAt(round, place) {
  const { kept, parents, texts } = round.draft;
  if (place > kept.length) return [];
  const before = place === 0 ? -1 : kept[place - 1];
  return texts.filter((_, node) => parents[node] === before && node !== kept[place]);
}

/** Compare two lists of token ids: how many were compared, how many of them are the same from the
 * first on. */
export function compare(one, other) {
  const compared = Math.min(one.length, other.length);
  let same = 0;
  while (same < compared && one[same] === other[same]) same += 1;
  return { compared, same };
}

/** The share of a text's 4-grams that occurred in it before: drafts of a loop are easily right. */
export function repetition(ids) {
  const grams = ids.slice(3).map((_, at) => ids.slice(at, at + 4).join());
  return grams.length ? 1 - new Set(grams).size / grams.length : 0;
}

/** A round as a fragment of a link. */
export function toFragment(round) {
  const bytes = new TextEncoder().encode(JSON.stringify(round));
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return "#round=" + btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The round that a link's fragment holds, null if it holds none. */
export function fromFragment(fragment) {
  if (!fragment.startsWith("#round=")) return null;
  try {
    const text = atob(fragment.slice(7).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
    const round = JSON.parse(new TextDecoder().decode(bytes));
    return isRound(round) ? round : null;
  } catch {
    return null;
  }
}

const NUMBERS = ["round", "bought", "k", "began_s", "draft_wait_s", "verify_s",
  "verifier_queue_s", "verifier_s", "drafter_s"];
const TEXTS = ["source", "reason", "led_by", "ahead"];
const all = (list, test) => Array.isArray(list) && list.length <= 4096 && list.every(test);

/** Whether a value from outside has a round's shape, with its nodes behind their parents. */
function isRound(round) {
  const draft = round?.draft, count = draft?.tokens?.length;
  const node = (value) => Number.isInteger(value) && value >= 0 && value < count;
  return NUMBERS.every((name) => Number.isFinite(round[name]))
    && TEXTS.every((name) => typeof round[name] === "string")
    && all(round.tokens, (token) => typeof token?.text === "string" && typeof token.origin === "string")
    && all(draft.tokens, Number.isInteger)
    && all(draft.texts, (text) => typeof text === "string") && draft.texts.length === count
    && all(draft.parents, (parent, at) => parent === -1 || (node(parent) && parent < at))
    && draft.parents.length === count && all(draft.kept, node)
    && Number.isFinite(round.price?.row_s) && Number.isFinite(round.price?.sessions);
}
