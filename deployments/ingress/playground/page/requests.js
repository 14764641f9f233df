// What the form asks for, as requests of the OpenAI API.

const STARTS = {
  completion: "def merge_sorted(left: list[int], right: list[int]) -> list[int]:\n"
    + '    """Return one sorted list of both lists\' items."""\n',
  infill: "class Point:\n    def __init__(self, x, y):\n        self.x = {{1}}\n        self.y = {{1}}\n\n\n"
    + "class Stack:\n    def push(self, item):\n        self.items.{{4}}\n\n    def pop(self):\n        return self.items.{{2}}\n",
  chat: "Write a Python function that returns the n-th Fibonacci number, and explain it.",
};

const HOLE = /\{\{([1-9]\d{0,3})\}\}/;

/** Keeps a conversation, and writes requests. */
export class Requests {
  constructor(form) {
    this.form = form;
    this.turns = [];
    this.prompt = form.querySelector("#prompt");
    this.#suggest();
    for (const radio of form.elements.mode) radio.addEventListener("change", () => this.#suggest());
  }

  /** Begin with holes if the model fills them, or a conversation if it has a chat template. */
  offer({ chat, infill }) {
    this.form.querySelector("[value=chat]").disabled = !chat;
    this.form.querySelector("[value=infill]").parentElement.hidden = !infill;
    if (!(chat || infill) || this.prompt.value !== STARTS.completion) return;
    this.form.elements.mode.value = infill ? "infill" : "chat";
    this.#suggest();
  }

  #suggest() {
    const fills = this.mode === "infill";
    this.form.querySelector("#holes").hidden = !fills;
    this.form.querySelector("#max-tokens").disabled = fills;
    const own = this.prompt.value && !Object.values(STARTS).includes(this.prompt.value);
    if (!own) this.prompt.value = STARTS[this.mode];
  }

  get mode() {
    return this.form.elements.mode.value;
  }

  get path() {
    return this.mode === "chat" ? "v1/chat/completions" : "v1/completions";
  }

  /** What is shown around the answer: texts, and holes as their number of tokens. */
  get shown() {
    if (this.mode === "infill") return this.#parts;
    if (this.mode === "completion") return [this.prompt.value];
    return [this.#messages.map(({ role, content }) => `${role}: ${content}\n\n`).join("") + "assistant: "];
  }

  /** The prompt's texts, and between two of them a hole's number of tokens. */
  get #parts() {
    const parts = this.prompt.value.split(HOLE).map((part, at) => (at % 2 ? Number(part) : part));
    return parts.filter((part) => part !== "");
  }

  get #asked() {
    if (this.mode === "chat") return { messages: this.#messages };
    if (this.mode === "completion") return { prompt: this.prompt.value };
    return { infill: this.#parts.map((part) => (typeof part === "number" ? { mask: part } : part)) };
  }

  /** The body of a request, decoded with drafts or plainly. A race shares nothing read before. */
  body(enabled, race) {
    const number = (id) => Number(this.form.querySelector(id).value);
    return {
      ...this.#asked,
      ...(this.mode !== "infill" && { max_tokens: number("#max-tokens") }),
      temperature: number("#temperature"),
      seed: number("#seed"),
      speculative: { enabled, rounds: true },
      ...(race && { cache_salt: crypto.getRandomValues(new Uint32Array(4)).join("-") }),
    };
  }

  /** Take a whole answer into the conversation. */
  answered(text) {
    if (this.mode !== "chat") return;
    this.turns = [...this.#messages, { role: "assistant", content: text }];
    this.prompt.value = "";
  }

  /** The conversation up to the question; without a new one the last is asked again. */
  get #messages() {
    if (!this.prompt.value && this.turns.length) return this.turns.slice(0, -1);
    return [...this.turns, { role: "user", content: this.prompt.value }];
  }

  forget() {
    this.turns = [];
  }
}
