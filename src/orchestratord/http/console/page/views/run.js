// The job that the playground shows: how it is sent, followed, stopped and run again. It outlives the view, so that one may look at
// Jobs meanwhile; over a reload its id alone is kept.
import { ApiError, followJob, getJson, ownError, postJson, postStream, token } from "../api.js";
import { announce } from "../dom.js";
import { refresh } from "../store.js";

const RUNNING_KEY = "llorch-running-job";
const LOOK_MS = 700;
const SUBMIT_MS = 75_000; // for the service's word that it has the job
const UNSURE = "If the service has it, it is under Jobs and may run on.";

// The job on screen: {serial, id, status, text, tokens, pieces, calls, thoughts, end, receipt, error, note, ...}. Its next event ends
// `note`, its own end `stopNote`.
let current;
let runs = 0;
let changed = () => {};

export const currentRun = () => current;
export const isLive = (job) => Boolean(job) && ["submitting", "queued", "running"].includes(job.status);
// `listener()` is called after every change; the view that is shown has it.
export function whenRunChanges(listener) {
  changed = listener;
}

const newRun = (status, more) => ({
  serial: ++runs, text: "", thoughts: "", calls: [], pieces: [], tokens: 0, status, abort: new AbortController(), note: "", ...more,
});

function update(job, fields) {
  Object.assign(job, fields);
  changed();
}

// `talk`, if any, has answer(turn), which adds the job's turn to the conversation, and takeBack(): it was never asked.
function finish(job, talk) {
  if (current !== job) return;
  sessionStorage.removeItem(RUNNING_KEY);
  job.stopNote = "";
  const calls = job.status === "completed" ? job.calls : []; // others may have been cut
  job.isAnswer = Boolean(talk) && (job.status === "completed" || job.text !== "");
  if (job.isAnswer) talk.answer({ role: "assistant", content: job.text, ...(calls.length && { tool_calls: calls }) });
  else talk?.takeBack();
  announce(job.status === "completed" ? `The job has ended with ${job.end?.tokens_out ?? job.tokens} tokens` : `The job is ${job.status}`);
  refresh("jobs");
  changed();
}

function fail(job, error, status = "failed") {
  const isLeft = job.abort.signal.aborted;
  const isUnsure = isLeft || /^(UNREACHABLE|HTTP_5)/.test(error.code); // not in the service's own words
  Object.assign(job, { status: isLeft || error.code === "CANCELLED" ? "cancelled" : status, error, note: isUnsure ? UNSURE : "" });
}

function addToken(job, { t, logprobs }) {
  job.note = "";
  job.firstAt ??= performance.now();
  job.lastAt = performance.now();
  job.text += t;
  ++job.tokens;
  if (logprobs) job.pieces.push({ text: t, logprob: logprobs.logprob, others: logprobs.top_logprobs });
}

// --- /v2: resumed over any number of connections ---

async function follow(job, talk) {
  const onLost = (wantsToken) => update(job, { note: wantsToken ? "It goes on once a token is given." : "Connection lost; it goes on where it stopped." });
  try {
    for await (const { event, data } of followJob(job.id, { signal: job.abort.signal, onLost })) {
      if (current !== job) return;
      if (event === "started") Object.assign(job, { status: "running", startedAt: performance.now(), seed: data.seed, waitMs: data.queue_wait_ms, note: "" });
      else if (event === "token") addToken(job, data);
      else if (event === "end") Object.assign(job, { status: "completed", end: data, receipt: data.receipt, note: job.tokens < data.tokens_out ? "It ended a while ago; its text is held no more." : "" });
      else if (event === "error") {
        fail(job, { ...data, correlationId: data.correlation_id });
        job.note = "";
      }
      changed();
    }
  } catch (error) {
    fail(job, error);
  }
  finish(job, talk);
}

// While a job waits, the API says for what and how long.
async function explainWait(job) {
  const waits = () => current === job && job.status === "queued";
  let wantsToken = false;
  while (waits()) {
    const seen = !(wantsToken && !token.get()) && await getJson(`/v2/tasks/${job.id}`).catch((error) => void (wantsToken = error.status === 401));
    if (seen && waits()) update(job, { wait: seen, note: "" });
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

function begin(id, more, talk) {
  current = newRun("queued", { id, ...more });
  sessionStorage.setItem(RUNNING_KEY, id);
  follow(current, talk);
  explainWait(current);
  changed();
}

// --- /v1: where tools are offered, the service reads calls and thoughts out of the text. Such a stream ends with its page ---

export const asOpenAi = ({ on_disconnect: _, logprobs: __, top_logprobs: ___, priority, ...request }) => ({ ...request, ...(priority === "batch" && { service_tier: "flex" }) });

function addDelta(job, delta) {
  if (delta.reasoning_content) job.thoughts += delta.reasoning_content;
  if (delta.content) job.text += delta.content;
  for (const { index, ...call } of delta.tool_calls ?? []) {
    const known = (job.calls[index] ??= { id: call.id, type: "function", function: { name: "", arguments: "" } });
    known.function.name += call.function?.name ?? "";
    known.function.arguments += call.function?.arguments ?? "";
  }
}

async function streamChat(job, body, talk) {
  try {
    for await (const { event, data } of postStream("/v1/chat/completions", { ...body, stream: true }, { signal: job.abort.signal, limitMs: SUBMIT_MS })) {
      if (current !== job) return;
      if (event === "comment") {
        job.note = data;
      } else if (data.error) {
        throw new ApiError(0, ownError(data));
      } else {
        job.id ??= data.id?.replace(/^chatcmpl-/, "");
        Object.assign(job, { status: "running", note: "" });
        job.firstAt ??= performance.now();
        job.lastAt = performance.now();
        if (data.choices?.[0]?.delta) addDelta(job, data.choices[0].delta);
        if (data.llorch) Object.assign(job, { end: data.llorch, receipt: data.llorch.receipt, seed: data.llorch.receipt?.seed });
      }
      changed();
    }
    job.status = job.end ? "completed" : "failed";
  } catch (error) {
    fail(job, error);
  }
  finish(job, talk);
}

// --- what the view does ---

// Sends `request`, a body of /v2/tasks, of which `talk` is told the outcome. What refuses it is shown in the run's place.
export async function start(request, talk) {
  current?.abort.abort();
  current = newRun("submitting", { request, isTurn: Boolean(talk) });
  const job = current;
  changed();
  if (request.tools) {
    const body = asOpenAi(request);
    Object.assign(job, { status: "queued", again: async (seed) => (await postJson("/v1/chat/completions", { ...body, seed })).llorch.receipt });
    changed();
    await streamChat(job, body, talk);
    return;
  }
  try {
    const accepted = await postJson("/v2/tasks", request, { signal: AbortSignal.any([job.abort.signal, AbortSignal.timeout(SUBMIT_MS)]) });
    const again = async (seed) => (await postJson("/v2/tasks?wait=true", { ...request, seed, on_disconnect: "cancel" })).receipt;
    begin(accepted.job_id, { request, isTurn: Boolean(talk), wait: accepted, again }, talk);
    refresh("jobs");
  } catch (error) {
    fail(job, error, "refused");
    finish(job, talk);
  }
}

export function refuse(error) {
  current = newRun("refused", { error });
  changed();
}

export async function stop() {
  const job = current;
  update(job, { stopNote: "Stopping …" });
  if (!job.id) return job.abort.abort();
  // Without a token the page can leave the job, and do no more.
  return postJson(`/v2/tasks/${job.id}/cancel`).catch((error) => {
    if (error.status === 401) job.abort.abort();
    else if (isLive(job)) update(job, { stopNote: error.message });
  });
}

export function forget() {
  current = undefined;
  changed();
}

// Goes on with the job of before a reload.
export function goOn() {
  const left = sessionStorage.getItem(RUNNING_KEY);
  if (!current && left) begin(left, {});
}
