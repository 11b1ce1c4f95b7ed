// Type a prompt or chat, watch the tokens, stop, and check the result byte by byte. A reload goes on with the running job.
import { followJob, getJson, postJson } from "../api.js";
import { announce, empty, errorBox, field, h, setShown, setText } from "../dom.js";
import { count, duration, rate, shortId } from "../format.js";
import { latest, refresh, watch } from "../store.js";
import { ImagePicker } from "./images.js";
import { receiptTable, verify } from "./receipt.js";
import { SamplingForm } from "./sampling_form.js";

const RUNNING_KEY = "llorch-running-job"; // its id alone: neither prompts nor outputs are kept
const LOOK_MS = 700;

// What was typed, for as long as the page is open.
const draft = { mode: "prompt", prompt: "Once upon a time", system: "", message: "", turns: [], model: undefined };
let sampling;

// The job on screen: {id, request, text, status, ...}. It outlives the view, so that one may look at Jobs meanwhile.
let run;
let runs = 0;
let show = () => {};

// Tokens come faster than the screen shows them.
let frame;
function showSoon() {
  frame ??= requestAnimationFrame(() => {
    frame = undefined;
    show();
  });
}

function submission() {
  const request = { model: draft.model, on_disconnect: "resume", ...sampling.read() };
  if (draft.mode === "prompt") return { ...request, prompt: draft.prompt };
  const messages = [...(draft.system ? [{ role: "system", content: draft.system }] : []), ...draft.turns];
  return { ...request, messages };
}

async function follow(job) {
  try {
    for await (const { event, data } of followJob(job.id, { signal: job.abort.signal, onLost: () => note(job, "Connection lost; it goes on where it stopped.") })) {
      if (run !== job) return;
      if (event === "started") Object.assign(job, { status: "running", startedAt: performance.now(), seed: data.seed, waitMs: data.queue_wait_ms, note: "" });
      else if (event === "token") addToken(job, data);
      else if (event === "end") Object.assign(job, { status: "completed", end: data, receipt: data.receipt, note: job.tokens < data.tokens_out ? "It ended a while ago; its text is held no more." : "" });
      else if (event === "error") Object.assign(job, { status: data.code === "CANCELLED" ? "cancelled" : "failed", error: { ...data, correlationId: data.correlation_id } });
      showSoon();
    }
  } catch (error) {
    if (job.abort.signal.aborted) return;
    Object.assign(job, { status: "failed", error });
  }
  finish(job);
}

function addToken(job, { t }) {
  job.note = "";
  job.firstAt ??= performance.now();
  job.lastAt = performance.now();
  job.text += t;
  ++job.tokens;
}

function note(job, text) {
  job.note = text;
  show();
}

function finish(job) {
  if (run !== job) return;
  sessionStorage.removeItem(RUNNING_KEY);
  if (job.isTurn && job.text) draft.turns.push({ role: "assistant", content: job.text });
  announce(job.status === "completed" ? `The job has ended with ${job.tokens} tokens` : `The job is ${job.status}`);
  refresh("jobs");
  show();
}

// While a job waits, the API says for what and how long.
async function explainWait(job) {
  while (run === job && job.status === "queued") {
    const seen = await getJson(`/v2/tasks/${job.id}`).catch(() => undefined);
    if (seen && run === job && job.status === "queued") {
      job.wait = seen;
      show();
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

const newRun = (status, more) => ({ serial: ++runs, text: "", tokens: 0, status, abort: new AbortController(), note: "", ...more });

function begin(id, more) {
  run = newRun("queued", { id, ...more });
  sessionStorage.setItem(RUNNING_KEY, id);
  follow(run);
  explainWait(run);
  show();
}

async function submit() {
  const isTurn = draft.mode === "chat";
  let turn;
  run?.abort.abort();
  try {
    if (isTurn) {
      turn = { role: "user", content: draft.images.contentWith(draft.message) };
      draft.turns.push(turn);
    }
    const request = submission();
    run = newRun("submitting");
    show();
    const accepted = await postJson("/v2/tasks", request);
    if (isTurn) {
      draft.message = "";
      draft.images.clear();
    }
    begin(accepted.job_id, { request, isTurn, wait: accepted });
    refresh("jobs");
  } catch (error) {
    if (turn) draft.turns.splice(draft.turns.indexOf(turn), 1);
    run = newRun("refused", { error });
    show();
  }
}

async function stop() {
  const job = run;
  note(job, "Stopping …");
  await postJson(`/v2/tasks/${job.id}/cancel`).catch((error) => note(job, error.message));
}

function waitText(job) {
  const wait = job.wait;
  if (!wait) return "Waiting.";
  const place = wait.queue_position === undefined ? "" : wait.queue_position === 0 ? "Next in line. " : `${wait.queue_position} before it. `;
  const start = wait.predicted_start_ms ? ` Starts in about ${duration(wait.predicted_start_ms)}.` : "";
  return `${place}${wait.reason?.human ?? ""}${start}`;
}

function speed(job) {
  if (job.end) return job.end.decode_time_ms > 0 ? (job.end.tokens_out * 1000) / job.end.decode_time_ms : undefined;
  return job.tokens > 1 ? ((job.tokens - 1) * 1000) / (job.lastAt - job.firstAt) : undefined;
}

function resultPanel() {
  const output = h("div", { class: "output", "aria-label": "Output", role: "log", "aria-live": "off", tabindex: "0" });
  const text = document.createTextNode("");
  const caret = h("span", { class: "caret", "aria-hidden": "true" });
  const state = h("p", { class: "run-state", role: "status" });
  const progress = h("progress", { max: "100", "aria-label": "Model load" });
  const figures = h("dl", { class: "stats" });
  const errors = h("div");
  const receipt = h("div");
  const placeholder = empty("Nothing has been asked yet", "Type a prompt and press Run, or Ctrl + Enter.");
  const node = h("section", { class: "panel result", "aria-label": "Result" }, h("div", { class: "run-line" }, state, progress), output, errors, figures, receipt);
  let shownJob;

  function stat(name, value, title) {
    return h("div", { title }, h("dt", {}, name), h("dd", {}, value));
  }

  // `turns` stand before the output of a chat.
  function showTurns(turns) {
    const said = (turn) => (typeof turn.content === "string" ? turn.content : turn.content.map((part) => part.text ?? "[image] ").join(""));
    return turns.map((turn) => h("div", { class: `turn turn-${turn.role}` }, h("span", { class: "turn-role" }, turn.role), h("div", {}, said(turn))));
  }

  function update() {
    const job = run;
    const isChat = draft.mode === "chat";
    const isLive = job && ["queued", "running"].includes(job.status);
    const turns = isChat ? draft.turns : [];
    const key = [job?.serial, job?.status, turns.length, draft.mode].join();
    if (shownJob !== key) {
      shownJob = key;
      const answersLast = job?.isTurn && !isLive && turns.at(-1)?.role === "assistant";
      const showsText = job && !answersLast && job.status !== "refused";
      output.replaceChildren(...(!job && turns.length === 0 ? [placeholder] : [
        ...showTurns(turns),
        ...(showsText ? [h("div", { class: job.isTurn ? "turn turn-assistant" : "turn-plain" }, job.isTurn && h("span", { class: "turn-role" }, "assistant"), h("div", {}, text, isLive && caret))] : []),
      ]));
      errors.replaceChildren(...(job?.error && job.status !== "cancelled" ? [errorBox(job.error)] : []));
      receipt.replaceChildren(...(job?.receipt ? [receiptPanel(job)] : []));
    }
    if (job && text.data !== job.text) {
      const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
      if (job.text.startsWith(text.data)) text.appendData(job.text.slice(text.data.length));
      else text.data = job.text;
      if (atEnd) output.scrollTop = output.scrollHeight;
    } else if (!job) {
      text.data = "";
    }
    const words = { submitting: "Sending …", queued: "Queued", running: "Running", completed: "Completed", cancelled: "Stopped", failed: "Failed", refused: "Refused" };
    state.dataset.state = job?.status ?? "";
    setText(state, job ? [words[job.status], job.status === "queued" ? waitText(job) : job.note].filter(Boolean).join(" · ") : "");
    const loading = job?.status === "queued" ? job.wait?.reason?.load_percent : undefined;
    setShown(progress, loading !== undefined);
    if (loading !== undefined) progress.value = loading;
    const tps = job && speed(job);
    figures.replaceChildren(...(job?.tokens || job?.end ? [
      stat("tokens", count(job.end?.tokens_out ?? job.tokens)),
      stat("tokens/s", tps === undefined ? "–" : rate(tps)),
      job.waitMs !== undefined && stat("waited", duration(job.waitMs), "In the queue"),
      job.end && stat("first token", duration(job.end.first_token_ms), "From the worker's acceptance to the first token"),
      job.end && stat("prompt tokens", count(job.end.tokens_in)),
      job.seed !== undefined && stat("seed", String(job.seed)),
      job.end && stat("ended by", job.end.stop_reason.replace("_", " ")),
      stat("job", h("a", { href: `#/jobs/${job.id}` }, shortId(job.id))),
    ].filter(Boolean) : []));
  }
  return { node, update };
}

function receiptPanel(job) {
  const outcome = h("div", { class: "verified", role: "status" });
  const button = h("button", {
    type: "button", class: "quiet", disabled: !job.request, onclick: async () => {
      button.disabled = true;
      outcome.replaceChildren("The same request runs again …");
      outcome.replaceChildren(await verify(job.request, job.receipt).catch((error) => errorBox(error)));
      button.disabled = false;
    },
  }, "Verify");
  const hint = job.request
    ? "Verify runs the same request again and compares everything that the receipts name."
    : "The page was loaded anew and keeps no prompt; `llorch verify` compares receipts as well.";
  return h("details", { class: "receipt" }, h("summary", {}, "Receipt"), receiptTable(job.receipt), h("p", { class: "hint" }, hint), button, outcome);
}

function modelPicker() {
  const select = h("select", { onchange: () => {
    draft.model = select.value;
    show();
  } });
  const node = field("Model", select, " ");
  const hint = node.querySelector(".hint");
  const update = ({ value, error }) => {
    if (error && !value) return setText(hint, error.message);
    const names = value.models.map((model) => model.model_id);
    if (select.options.length !== names.length || names.some((name, i) => select.options[i].value !== name)) {
      select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
    }
    if (!names.includes(draft.model)) draft.model = names[0];
    if (select.value !== (draft.model ?? "")) select.value = draft.model ?? "";
    const model = value.models.find((each) => each.model_id === draft.model);
    setText(hint, !model ? "No model has a name: pull one under Models, or start with `llorch up --model FILE`."
      : model.facts ? `${model.facts.architecture} ${model.facts.quant_kind}, context of ${count(model.facts.context_length)} tokens` : model.reason?.human ?? "");
    setShown(draft.images.node, draft.mode === "chat" && Boolean(model?.facts?.images));
    return undefined;
  };
  return { node, unwatch: watch("models", (state) => {
    update(state);
    showSoon();
  }), update: () => latest("models") && update({ value: latest("models") }) };
}

export function mount(root) {
  sampling ??= new SamplingForm();
  draft.images ??= new ImagePicker();
  const result = resultPanel();
  const models = modelPicker();
  const prompt = h("textarea", { rows: "5", spellcheck: "false", value: draft.prompt, oninput: () => (draft.prompt = prompt.value) });
  const system = h("textarea", { rows: "2", value: draft.system, oninput: () => (draft.system = system.value) });
  const message = h("textarea", { rows: "3", value: draft.message, oninput: () => (draft.message = message.value) });
  const runButton = h("button", { type: "button", class: "main", onclick: () => submit(), "aria-keyshortcuts": "Control+Enter" }, "Run");
  const stopButton = h("button", { type: "button", class: "danger", onclick: () => stop() }, "Stop");
  const clear = h("button", { type: "button", class: "quiet", onclick: () => {
    draft.turns = [];
    run = undefined;
    show();
  } }, "Clear");
  const modes = ["prompt", "chat"].map((mode) => {
    const radio = h("input", { type: "radio", name: "mode", value: mode, checked: draft.mode === mode, onchange: () => {
      draft.mode = mode;
      show();
    } });
    return h("label", { class: "choice" }, radio, mode === "prompt" ? "Prompt" : "Chat");
  });
  const promptField = field("Prompt", prompt);
  const chatFields = h("div", {}, field("System", system), field("Message", message));
  const composer = h("section", { class: "panel composer", "aria-label": "Request" },
    h("fieldset", { class: "choices" }, h("legend", { class: "unseen" }, "Kind of request"), modes),
    promptField, chatFields, draft.images.node, h("div", { class: "actions" }, clear, stopButton, runButton));
  const side = h("aside", { class: "panel side", "aria-label": "Model and sampling" }, models.node, sampling.node);

  show = () => {
    const isLive = run && ["submitting", "queued", "running"].includes(run.status);
    setShown(promptField, draft.mode === "prompt");
    setShown(chatFields, draft.mode === "chat");
    if (message.value !== draft.message) message.value = draft.message;
    runButton.disabled = Boolean(isLive) || !draft.model;
    setShown(stopButton, Boolean(isLive && run.id));
    setShown(clear, Boolean(run || draft.turns.length) && !isLive);
    models.update();
    result.update();
  };
  root.append(h("h1", { class: "unseen" }, "Playground"), h("div", { class: "playground" }, h("div", { class: "column" }, composer, result.node), side));
  const onKey = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !runButton.disabled) submit();
  };
  root.addEventListener("keydown", onKey);
  const left = sessionStorage.getItem(RUNNING_KEY);
  if (!run && left) begin(left, {});
  show();
  return () => {
    root.removeEventListener("keydown", onKey);
    models.unwatch();
    show = () => {};
  };
}
