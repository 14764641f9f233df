// One text on its way: its tokens in their colours, and how fast they come.

import { stream } from "./api.js";
import { endOf, rejectedAt, repetition } from "./rounds.js";

const OPEN = "\u2591";

export class Lane {
  /** chosen is called with the round of a token that was clicked; changed after every round. */
  constructor(article, { chosen, changed }) {
    this.article = article;
    this.box = article.querySelector(".text");
    this.numbers = article.querySelector(".numbers");
    this.changed = changed;
    this.chosen = chosen;
    this.clear();
    this.box.addEventListener("click", (event) => this.#choose(event.target));
    this.box.addEventListener("mouseover", (event) => this.#tell(event.target));
    this.box.addEventListener("mouseleave", () => this.#tell(null));
    this.box.addEventListener("blur", () => this.#tell(null));
    this.box.addEventListener("keydown", (event) => this.#key(event));
  }

  clear() {
    Object.assign(this, { rounds: [], ids: [], text: "", cursor: -1, finished: false, spans: [], holes: [] });
    this.box.replaceChildren();
    this.numbers.textContent = "";
  }

  /** Decode a request to its end, behind the texts shown, or into the holes between them. Rounds
   * are shown `slower` times later than they ended. */
  async run(path, body, { shown, slower, signal }) {
    this.clear();
    for (const part of shown) this.box.append(typeof part === "number" ? this.#hole(part) : given(part));
    const began = performance.now();
    for await (const chunk of stream(path, body, signal)) {
      const choice = chunk.choices[0];
      if (!choice) continue;
      const text = choice.text ?? choice.delta?.content ?? "";
      const rounds = choice.rounds ?? [];
      for (const round of rounds) {
        const due = began + 1e3 * slower * endOf(round);
        if (slower > 1) await pause(due - performance.now(), signal);
        this.#show(round);
        this.changed(this);
      }
      // What was held back, as it could have begun a stop string, comes with no token of its own.
      const known = rounds.flatMap((round) => round.tokens).map((token) => token.text).join("");
      if (text.length > known.length && !this.holes.length) this.box.append(text.slice(known.length));
      this.text += text;
    }
    this.finished = true;
    this.changed(this);
  }

  get seconds() {
    return this.rounds.length ? endOf(this.rounds[this.rounds.length - 1]) : 0;
  }

  #show(round) {
    this.rounds.push(round);
    const follow = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 40;
    round.tokens.forEach((token, place) => {
      const span = document.createElement("span");
      span.className = `token ${token.origin}`;
      span.textContent = token.text;
      span.dataset.at = String(this.spans.length);
      this.spans.push({ span, round, place });
      this.ids.push(token.id);
      this.#place(span);
    });
    if (follow) this.box.scrollTop = this.box.scrollHeight;
    const speed = this.ids.length / Math.max(this.seconds, 1e-9);
    this.numbers.textContent = `${this.ids.length} tokens, ${this.seconds.toFixed(2)} s, `
      + `${speed.toFixed(0)} tokens/s, ${this.rounds.length} rounds, `
      + `repetition ${(100 * repetition(this.ids)).toFixed(0)} %`;
  }

  /** Return a hole's place, with a sign for each token that is to come. */
  #hole(tokens) {
    const box = document.createElement("span");
    box.className = "hole";
    const open = document.createTextNode(OPEN.repeat(tokens));
    box.append(open);
    this.holes.push({ box, open });
    return box;
  }

  /** Put a token behind the text, or into the first hole that has room, with its number. */
  #place(span) {
    const hole = this.holes.find(({ open }) => open.data);
    if (!hole) return this.box.append(span);
    span.dataset.order = String(this.ids.length);
    hole.open.data = hole.open.data.slice(OPEN.length);
    hole.box.insertBefore(span, hole.open);
  }

  #choose(target) {
    const found = this.spans[target?.dataset?.at];
    if (found) this.chosen(found.round);
  }

  #key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 };
    if (event.key === "Enter" && this.cursor >= 0) this.chosen(this.spans[this.cursor].round);
    if (!(event.key in steps) || !this.spans.length) return;
    event.preventDefault();
    this.spans[this.cursor]?.span.classList.remove("current");
    const next = this.cursor + steps[event.key];
    this.cursor = Math.max(0, Math.min(this.spans.length - 1, next));
    const { span } = this.spans[this.cursor];
    span.classList.add("current");
    span.scrollIntoView({ block: "nearest" });
    this.#tell(span);
  }

  #tell(target) {
    const tip = document.getElementById("tip");
    const found = this.spans[target?.dataset?.at];
    tip.hidden = !found;
    if (!found) return;
    const { span, round, place } = found;
    const { origin, id } = round.tokens[place];
    const rejected = rejectedAt(round, place).map((text) => JSON.stringify(text));
    const instead = rejected.length ? `\ndrafted, but not kept: ${rejected.join(", ")}` : "";
    tip.textContent = `${origin}, token ${id}, round ${round.round}${instead}`;
    const box = span.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
    const below = box.bottom + tip.offsetHeight + 6 < innerHeight;
    tip.style.top = `${below ? box.bottom + 4 : box.top - tip.offsetHeight - 4}px`;
  }
}

function given(text) {
  const span = document.createElement("span");
  span.className = "before";
  span.textContent = text;
  return span;
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, Math.max(0, ms));
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); });
  });
}
