// The only module that talks to the server.

const TOKEN_KEY = "llorch-token";
const READ_MS = 15_000; // for an answer to a question, to its last byte
const SILENCE_MS = 60_000; // of a job's stream, which has a comment every 15 s by default

export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY),
  set: (value) => sessionStorage.setItem(TOKEN_KEY, value),
  forget: () => sessionStorage.removeItem(TOKEN_KEY),
};

// What the server refused, in its words; UNREACHABLE if it gave no answer.
export class ApiError extends Error {
  constructor(status, body) {
    super(body.message);
    this.status = status;
    this.code = body.code;
    this.retriable = body.retriable ?? false;
    this.retryAfterMs = body.retry_after_ms;
    this.correlationId = body.correlation_id;
    this.details = body.details ?? {};
  }
}

// Seeds have 63 bits, more than a number of JavaScript holds: a long one stays the text that came, and goes back as it is.
const decode = (text) => JSON.parse(text, (key, value, context) =>
  (key === "seed" && typeof value === "number" && !Number.isSafeInteger(value) ? (context?.source ?? value) : value));
const encode = (body) => JSON.stringify(body, function (key, value) {
  if (this !== body || key !== "seed" || typeof value !== "string") return value;
  return JSON.rawJSON ? JSON.rawJSON(value) : Number(value);
});

let onMissingToken = () => {};
// `listener(error, held)` is called when the server wants a token, or another one than `held`.
export function whenTokenIsMissing(listener) {
  onMissingToken = listener;
}

// The service's own error of an answer: under /v1 it lies in that of the other API.
export const ownError = ({ error }) => error.llorch ?? error;

async function errorOf(response) {
  const body = await response.text().then(decode).catch(() => null);
  if (body?.error?.message) return new ApiError(response.status, ownError(body));
  // Without an envelope a 5xx is a proxy's, behind which orchestratord may be starting.
  return new ApiError(response.status, { code: `HTTP_${response.status}`, message: "the server answered without an explanation", retriable: response.status >= 500 });
}

// What `step()` gives. It fails with an ApiError, or with an AbortError of its caller.
async function reach(step) {
  try {
    return await step();
  } catch (cause) {
    if (cause.name === "AbortError") throw cause;
    throw new ApiError(0, { code: "UNREACHABLE", message: "orchestratord does not answer. Is it running? `llorch ps` tells.", retriable: true });
  }
}

async function send(method, path, { body, headers = {}, signal } = {}) {
  const all = { ...headers };
  const held = token.get();
  if (held) all.Authorization = `Bearer ${held}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  const response = await reach(() => fetch(path, {
    method, headers: all, signal, body: body === undefined ? undefined : encode(body), cache: "no-store", credentials: "omit",
  }));
  if (response.ok) return response;
  const error = await errorOf(response);
  if (response.status === 401) onMissingToken(error, held);
  throw error;
}

export const getJson = async (path, options) => decode(await getText(path, options));
export async function getText(path, { limitMs = READ_MS } = {}) {
  const response = await send("GET", path, { signal: AbortSignal.timeout(limitMs) });
  return reach(() => response.text());
}
export async function postJson(path, body, options) {
  const response = await send("POST", path, { ...options, body: body ?? {} });
  return decode(await reach(() => response.text()));
}
export const deleteJson = async (path, options) => decode(await (await send("DELETE", path, options)).text());

// Events of a text/event-stream: {event, id, data}. A comment is an event "comment" with its text; "[DONE]" ends the stream.
// Whoever reads no further closes its connection.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      let end;
      while ((end = rest.indexOf("\n\n")) >= 0) {
        const event = { event: "message", id: undefined, data: "", comment: "" };
        for (const line of rest.slice(0, end).split("\n")) {
          const colon = line.indexOf(":");
          event[colon === 0 ? "comment" : line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
        }
        rest = rest.slice(end + 2);
        if (event.data === "[DONE]") return;
        if (event.data) yield { ...event, data: decode(event.data) };
        else if (event.comment) yield { event: "comment", data: event.comment };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Posts `body`, and yields the events of the answer, which begins within `limitMs`. It ends with its connection: nothing is asked again.
export async function* postStream(path, body, { signal, limitMs }) {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(new DOMException("", "TimeoutError")), limitMs);
  const sent = send("POST", path, { body, headers: { Accept: "text/event-stream" }, signal: AbortSignal.any([signal, limit.signal]) });
  yield* eventsOf(await sent.finally(() => clearTimeout(timer)));
}

const sleep = (ms, signal) => new Promise((resolve, reject) => {
  const abort = () => {
    clearTimeout(timer);
    reject(signal.reason);
  };
  const timer = setTimeout(() => {
    signal.removeEventListener("abort", abort);
    resolve();
  }, ms);
  signal.addEventListener("abort", abort, { once: true });
});

// A signal that aborts with `outer`, and when SILENCE_MS have passed since `heard()` was called.
function silenceLimit(outer) {
  const own = new AbortController();
  const abort = () => own.abort();
  outer.addEventListener("abort", abort);
  if (outer.aborted) abort();
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(abort, SILENCE_MS);
  };
  heard();
  const end = () => {
    clearTimeout(timer);
    outer.removeEventListener("abort", abort);
  };
  return { signal: own.signal, heard, end };
}

// Follows a job to its end, over any number of connections: each goes on after the last event that came, and the id of that
// event proves to the server what this page holds. `onLost(wantsToken)`: it goes on by itself, or once there is another token.
export async function* followJob(jobId, { signal, onLost = () => {} }) {
  let lastId;
  let wait = 250;
  for (;;) {
    const limit = silenceLimit(signal);
    let wantsToken = false;
    try {
      const headers = { Accept: "text/event-stream", ...(lastId && { "Last-Event-ID": lastId }) };
      const response = await send("GET", `/v2/tasks/${encodeURIComponent(jobId)}/events`, { headers, signal: limit.signal });
      for await (const event of eventsOf(response)) {
        limit.heard();
        wait = 250;
        if (event.event === "comment") continue;
        lastId = event.id ?? lastId;
        yield event;
        if (event.event === "end" || event.event === "error") return;
      }
    } catch (error) {
      if (signal.aborted) throw error;
      wantsToken = error.status === 401;
      if (error instanceof ApiError && error.status !== 0 && !error.retriable && !wantsToken) throw error;
    } finally {
      limit.end();
    }
    onLost(wantsToken);
    do await sleep(wait, signal); while (wantsToken && !token.get());
    wait = Math.min(wait * 2, 4000);
  }
}
