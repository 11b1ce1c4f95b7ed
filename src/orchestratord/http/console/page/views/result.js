// What came of a request: the conversation or the text as it grows, figures, receipt.
import { empty, errorBox, h, setShown, setText } from "../dom.js";
import { count, duration, percent, rate, shortId } from "../format.js";
import { receiptTable, verify } from "./receipt.js";
import { currentRun, isLive } from "./run.js";
import { callCard, openCalls, resultForm } from "./tools.js";

const WORDS = { submitting: "Sending …", queued: "Queued", running: "Running", completed: "Completed", cancelled: "Stopped", failed: "Failed", refused: "Refused" };

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

function stat(name, value, title) {
  return h("div", { title }, h("dt", {}, name), h("dd", {}, value));
}

function figuresOf(job) {
  if (!job?.tokens && !job?.end) return [];
  const tps = speed(job);
  return [
    stat("tokens", count(job.end?.tokens_out ?? job.tokens)),
    stat("tokens/s", tps === undefined ? "–" : rate(tps)),
    job.waitMs !== undefined && stat("waited", duration(job.waitMs), "In the queue"),
    job.end && stat("first token", duration(job.end.first_token_ms), "From the worker's acceptance to the first token"),
    job.end && stat("prompt tokens", count(job.end.tokens_in)),
    job.seed !== undefined && stat("seed", String(job.seed)),
    job.end && stat("ended by", job.end.stop_reason.replace("_", " ")),
    job.id && stat("job", h("a", { href: `#/jobs/${job.id}` }, shortId(job.id))),
  ].filter(Boolean);
}

function receiptPanel(job) {
  const outcome = h("div", { class: "verified", role: "status" });
  const button = h("button", {
    type: "button", class: "quiet", disabled: !job.again, onclick: async () => {
      button.disabled = true;
      outcome.replaceChildren("The same request runs again …");
      outcome.replaceChildren(await verify(job.again, job.receipt).catch((error) => errorBox(error)));
      button.disabled = false;
    },
  }, "Verify");
  const hint = job.again
    ? "Verify runs the same request again and compares everything that the receipts name."
    : "The page was loaded anew and keeps no prompt; `llorch verify` compares receipts as well.";
  return h("details", { class: "receipt" }, h("summary", {}, "Receipt"), receiptTable(job.receipt), h("p", { class: "hint" }, hint), button, outcome);
}

const said = (turn) => (typeof turn.content === "string" ? turn.content : turn.content.map((part) => part.text ?? "[image] ").join(""));

const turnNode = (turn) => h("div", { class: `turn turn-${turn.role}` }, h("span", { class: "turn-role" }, turn.role),
  h("div", { class: "said" }, said(turn), (turn.tool_calls ?? []).map(callCard)));

// A token of an output with log-probabilities: underlined by how likely it was, its alternatives in words.
const SURE = [0.9, 0.6, 0.3, 0];
function pieceNode({ text, logprob, others }) {
  const likely = Math.exp(logprob);
  const alternatives = (others ?? []).map((other) => `${JSON.stringify(other.token)} ${percent(Math.exp(other.logprob))}`).join("\n");
  return h("span", { class: `piece sure-${SURE.findIndex((bound) => likely >= bound)}`, title: `${percent(likely)}\n\nlikeliest:\n${alternatives}` }, text);
}

const pieceLegend = () => h("p", { class: "hint pieces-legend" }, "Token was ",
  SURE.map((bound, i) => h("span", { class: `piece sure-${i}` }, i === 0 ? "likely (90 % and more)" : i === SURE.length - 1 ? "unlikely (below 30 %)" : `${percent(bound)} and more`)), "; point at one for its alternatives.");

// The text of the job on screen, which only grows.
function liveText() {
  const text = document.createTextNode("");
  const pieces = h("span");
  const thoughts = h("div", { class: "thoughts" });
  const thoughtBox = h("details", { hidden: true, open: true }, h("summary", {}, "Thoughts"), thoughts);
  const calls = h("div");
  const caret = h("span", { class: "caret", "aria-hidden": "true" });
  const node = h("div", { class: "said" }, thoughtBox, pieces, text, caret, calls);
  return {
    node,
    // Returns whether anything was added.
    update(job) {
      setShown(caret, isLive(job));
      setShown(thoughtBox, job.thoughts !== "");
      setText(thoughts, job.thoughts);
      if (calls.childElementCount !== job.calls.length || job.calls.length) calls.replaceChildren(...job.calls.filter(Boolean).map(callCard));
      const shown = job.pieces.length;
      if (pieces.childElementCount > shown) pieces.replaceChildren();
      while (pieces.childElementCount < shown) pieces.append(pieceNode(job.pieces[pieces.childElementCount]));
      const wanted = shown ? "" : job.text;
      if (text.data === wanted && !shown) return false;
      if (wanted.startsWith(text.data)) text.appendData(wanted.slice(text.data.length));
      else text.data = wanted;
      return true;
    },
  };
}

// `draft()` has {mode, turns}; `answer(results)` sends the results of tools. Returns {node, update()}.
export function resultPanel({ draft, answer }) {
  const output = h("div", { class: "output", "aria-label": "Output", role: "log", "aria-live": "off", tabindex: "0" });
  const state = h("p", { class: "run-state", role: "status" });
  const progress = h("progress", { max: "100", "aria-label": "Model load" });
  const figures = h("dl", { class: "stats" });
  const errors = h("div");
  const open = h("div");
  const legend = h("div");
  const receipt = h("div");
  const placeholder = empty("Nothing has been asked yet", "Type a prompt and press Run, or Ctrl + Enter.");
  const node = h("section", { class: "panel result", "aria-label": "Result" }, h("div", { class: "run-line" }, state, progress), output, legend, open, errors, figures, receipt);
  let live = liveText();
  let shownJob;
  let shownSerial;

  function rebuild(job, turns) {
    if (job?.serial !== shownSerial) live = liveText();
    shownSerial = job?.serial;
    // How likely each token was, and thoughts, are in no turn: then the job is shown in its turn's place.
    const isAnswer = job?.isAnswer && turns.length > 0;
    const showsMore = job?.pieces.length > 0 || Boolean(job?.thoughts);
    const isSilent = job?.isTurn && !isLive(job) && !job.text;
    const showsText = job && (showsMore || !(isAnswer || isSilent)) && job.status !== "refused";
    const before = isAnswer && showsMore ? turns.slice(0, -1) : turns;
    output.replaceChildren(...(!job && turns.length === 0 ? [placeholder] : [
      ...before.map(turnNode),
      ...(showsText ? [h("div", { class: job.isTurn ? "turn turn-assistant" : "turn-plain" }, job.isTurn && h("span", { class: "turn-role" }, "assistant"), live.node)] : []),
    ]));
    output.scrollTop = output.scrollHeight;
    const calls = draft().mode === "chat" && !isLive(job) ? openCalls(turns) : [];
    open.replaceChildren(...(calls.length ? [resultForm(calls, answer)] : []));
    legend.replaceChildren(...(job?.pieces.length ? [pieceLegend()] : []));
    errors.replaceChildren(...(job?.error && job.status !== "cancelled" ? [errorBox(job.error)] : []));
    receipt.replaceChildren(...(job?.receipt ? [receiptPanel(job)] : []));
  }

  function update() {
    const job = currentRun();
    const turns = draft().mode === "chat" ? draft().turns : [];
    const key = [job?.serial, job?.status, turns.length, draft().mode].join();
    if (shownJob !== key) {
      shownJob = key;
      rebuild(job, turns);
    }
    const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    if (job && live.update(job) && atEnd) output.scrollTop = output.scrollHeight;
    state.dataset.state = job?.status ?? "";
    setText(state, job ? [WORDS[job.status], job.stopNote, job.note || (job.status === "queued" ? waitText(job) : "")].filter(Boolean).join(" · ") : "");
    const loading = job?.status === "queued" ? job.wait?.reason?.load_percent : undefined;
    setShown(progress, loading !== undefined);
    if (loading !== undefined) progress.value = loading;
    figures.replaceChildren(...figuresOf(job));
  }
  return { node, update };
}
