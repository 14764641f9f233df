// The panel of one round: chosen or the newest, pinned, copied as JSON and as a link.

import { endOf, toFragment } from "./rounds.js";
import { tree } from "./tree.js";

const $ = (id) => document.getElementById(id);

export class Panel {
  /** changed is called when another round is shown; rounds returns all there are. */
  constructor({ rounds, changed }) {
    this.round = null;
    this.pinned = false;
    this.rounds = rounds;
    this.changed = changed;
    $("previous").addEventListener("click", () => this.#step(-1));
    $("next").addEventListener("click", () => this.#step(1));
    $("pin").addEventListener("click", () => this.pin(!this.pinned));
    $("copy-json").addEventListener("click", () => this.#copy(JSON.stringify(this.round, null, 1), "JSON"));
    $("copy-link").addEventListener("click", () => {
      history.replaceState(null, "", toFragment(this.round));
      this.#copy(location.href, "link");
    });
    this.#enable();
  }

  /** Show the newest round, unless one is pinned. */
  follow(round) {
    if (!this.pinned) this.show(round);
  }

  /** Show a round and stay with it. */
  choose(round) {
    this.show(round);
    this.pin(true);
    this.changed();
  }

  /** Forget the round of a text that is gone, unless it is pinned. */
  clear() {
    if (!this.pinned) this.show(null);
  }

  pin(pinned) {
    this.pinned = pinned && this.round !== null;
    $("pin").setAttribute("aria-pressed", String(this.pinned));
  }

  show(round) {
    this.round = round;
    this.#enable();
    $("copied").textContent = "";
    $("round-number").textContent = round ? String(round.round) : "-";
    document.querySelector("#round .tree").replaceChildren(...(round ? [tree(round)] : []));
    $("facts").replaceChildren(...(round ? facts(round).map(fact) : []));
  }

  #enable() {
    for (const id of ["previous", "next", "pin", "copy-json", "copy-link"]) $(id).disabled = !this.round;
  }

  #step(by) {
    const found = this.rounds();
    const at = found.indexOf(this.round) + by;
    if (at >= 0 && at < found.length) this.choose(found[at]);
  }

  async #copy(text, what) {
    try {
      await navigator.clipboard.writeText(text);
      $("copied").textContent = `${what} copied`;
    } catch {
      $("copied").textContent = "the browser does not allow copying here";
    }
  }
}

function facts(round) {
  const us = (s) => `${(1e6 * s).toFixed(0)} µs`;
  const ms = (s) => `${(1e3 * s).toFixed(2)} ms`;
  return [
    ["drafted by", round.source],
    ["draft length k", `${round.k}: ${round.reason}`],
    ["offered / verified / kept", `${round.draft.tokens.length} / ${round.bought} / ${round.draft.kept.length}`],
    ["led by", round.led_by],
    ["next draft requested ahead", { hit: "yes, for this outcome", miss: "yes, for another outcome" }[round.ahead] ?? "no"],
    ["waited for the draft", ms(round.draft_wait_s)],
    ["drafter's pass", ms(round.drafter_s)],
    ["verified in", ms(round.verify_s)],
    ["of it queue / pass", `${ms(round.verifier_queue_s)} / ${ms(round.verifier_s)}`],
    ["sessions in the pass", String(round.price.sessions)],
    ["price of one more row", us(round.price.row_s)],
    ["ended after", ms(endOf(round))],
  ];
}

function fact([name, value]) {
  const row = document.createElement("div"), term = document.createElement("dt");
  const told = document.createElement("dd");
  term.textContent = name;
  told.textContent = value;
  row.append(term, told);
  return row;
}
