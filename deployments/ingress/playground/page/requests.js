// What the form asks for, as requests of the OpenAI API.

const STARTS = {
  completion: "def merge_sorted(left: list[int], right: list[int]) -> list[int]:\n"
    + '    """Return one sorted list of both lists\' items."""\n',
  chat: "Write a Python function that returns the n-th Fibonacci number, and explain it.",
};

/** Keeps a conversation, and writes requests. */
export class Requests {
  constructor(form) {
    this.form = form;
    this.turns = [];
    this.prompt = form.querySelector("#prompt");
    this.#suggest();
    for (const radio of form.elements.mode) radio.addEventListener("change", () => this.#suggest());
  }

  /** Begin with a conversation if the model has a chat template, else offer none. */
  offer(chat) {
    this.form.querySelector("[value=chat]").disabled = !chat;
    if (!chat || this.prompt.value !== STARTS.completion) return;
    this.form.elements.mode.value = "chat";
    this.#suggest();
  }

  #suggest() {
    const own = this.prompt.value && !Object.values(STARTS).includes(this.prompt.value);
    if (!own) this.prompt.value = STARTS[this.mode];
  }

  get mode() {
    return this.form.elements.mode.value;
  }

  get path() {
    return this.mode === "chat" ? "v1/chat/completions" : "v1/completions";
  }

  /** What is shown before the answer. */
  get before() {
    if (this.mode === "completion") return this.prompt.value;
    return this.#messages.map(({ role, content }) => `${role}: ${content}\n\n`).join("") + "assistant: ";
  }

  /** The body of a request, decoded with drafts or plainly. A race shares nothing read before. */
  body(enabled, race) {
    const number = (id) => Number(this.form.querySelector(id).value);
    return {
      ...(this.mode === "chat"
        ? { messages: this.#messages }
        : { prompt: this.prompt.value }),
      max_tokens: number("#max-tokens"),
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
