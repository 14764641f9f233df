// The server's HTTP API. Addresses are relative: the page may lie below a prefix.

/** Return the JSON that an address answers; throw its error's message. */
export async function get(path) {
  return checked(await fetch(path));
}

/** Post a JSON body; return the JSON answered. */
export async function post(path, body) {
  return checked(await sent(path, body));
}

/** Yield the chunks of a streamed answer until [DONE]; closing it cancels the request. */
export async function* stream(path, body, signal) {
  const response = await sent(path, { ...body, stream: true }, signal);
  if (!response.ok) await checked(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the stream broke off");
    const lines = (held + value).split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      const data = line.slice(6);
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
  }
}

function sent(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function checked(response) {
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Error(body?.error?.message ?? `HTTP ${response.status}`);
  return body;
}
