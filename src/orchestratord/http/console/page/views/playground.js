// Type a prompt or chat, watch the tokens, stop, and check the result byte by byte. A reload goes on with the running job.
import { errorBox, field, h, modal, setShown, setText } from "../dom.js";
import { count } from "../format.js";
import { latest, watch } from "../store.js";
import { showCurl } from "./curl.js";
import { ImagePicker } from "./images.js";
import { resultPanel } from "./result.js";
import { currentRun, forget, goOn, isLive, refuse, start, stop, whenRunChanges } from "./run.js";
import { SamplingForm } from "./sampling_form.js";
import { ToolsForm } from "./tools.js";

// What was typed, for as long as the page is open.
const draft = { mode: "prompt", prompt: "Once upon a time", system: "", message: "", turns: [], model: undefined };
let sampling;
let tools;

// The body of /v2/tasks for what stands in the forms. Throws an error with a code and a message.
function submission(turns = draft.turns) {
  const request = { model: draft.model, on_disconnect: "resume", ...sampling.read() };
  if (draft.mode === "prompt") return { ...request, prompt: draft.prompt };
  return { ...request, messages: [...(draft.system ? [{ role: "system", content: draft.system }] : []), ...turns], ...tools.read() };
}

const nextTurn = () => ({ role: "user", content: draft.images.contentWith(draft.message) });

// Asks for the answer to `added`, the newest turns. If nothing is said they leave the conversation, and `giveBack()` has what was typed.
function converse(added, giveBack = () => {}) {
  const { turns } = draft;
  const request = submission([...turns, ...added]);
  turns.push(...added);
  start(request, {
    answer: (turn) => turns.push(turn),
    takeBack() {
      turns.splice(turns.indexOf(added[0]), added.length);
      giveBack();
    },
  });
}

function attempt(send) {
  if (isLive(currentRun())) return;
  try {
    send();
  } catch (error) {
    refuse(error);
  }
}

const submit = () => attempt(() => {
  if (draft.mode === "prompt") return start(submission());
  const { message, images } = draft;
  const { urls } = images;
  converse([nextTurn()], () => {
    draft.message = [message, draft.message].filter(Boolean).join("\n"); // the latter was typed meanwhile
    images.set([...urls, ...images.urls]);
  });
  draft.message = "";
  return images.set([]);
});

const answerCalls = (results) => attempt(() => converse(results.map(({ call, content }) => ({ role: "tool", tool_call_id: call.id, content }))));

// A job that runs stays on screen, whatever stands in the forms.
function asCurl() {
  try {
    showCurl(submission(draft.mode === "chat" && draft.message ? [...draft.turns, nextTurn()] : draft.turns));
  } catch (error) {
    modal("No command", (close) => h("div", {}, errorBox(error), h("div", { class: "actions" }, h("button", { type: "button", class: "main", onclick: () => close() }, "Close"))));
  }
}

// Tokens come faster than the screen shows them.
let show = () => {};
let frame;
function showSoon() {
  frame ??= requestAnimationFrame(() => {
    frame = undefined;
    show();
  });
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

// A text area whose value is kept in `draft[key]`.
const kept = (key, rows) => {
  const area = h("textarea", { rows, spellcheck: key === "prompt" ? "false" : "true", value: draft[key], oninput: () => (draft[key] = area.value) });
  return area;
};

function modeChoice() {
  const modes = ["prompt", "chat"].map((mode) => {
    const radio = h("input", { type: "radio", name: "mode", value: mode, checked: draft.mode === mode, onchange: () => {
      draft.mode = mode;
      show();
    } });
    return h("label", { class: "choice" }, radio, mode === "prompt" ? "Prompt" : "Chat");
  });
  return h("fieldset", { class: "choices" }, h("legend", { class: "unseen" }, "Kind of request"), modes);
}

export function mount(root) {
  sampling ??= new SamplingForm();
  tools ??= new ToolsForm();
  draft.images ??= new ImagePicker();
  const result = resultPanel({ draft: () => draft, answer: answerCalls });
  const models = modelPicker();
  const system = kept("system", "2");
  const message = kept("message", "3");
  const runButton = h("button", { type: "button", class: "main", onclick: () => submit(), "aria-keyshortcuts": "Control+Enter" }, "Run");
  const stopButton = h("button", { type: "button", class: "danger", onclick: () => stop() }, "Stop");
  const curl = h("button", { type: "button", class: "quiet", onclick: asCurl }, "As curl");
  const clear = h("button", { type: "button", class: "quiet", onclick: () => {
    draft.turns = [];
    forget();
  } }, "Clear");
  const promptField = field("Prompt", kept("prompt", "5"));
  const systemField = field("System", system);
  const messageField = field("Message", message);
  const composer = h("section", { class: "panel composer", "aria-label": "Request" },
    modeChoice(), promptField, systemField, messageField, draft.images.node, h("div", { class: "actions" }, clear, curl, stopButton, runButton));
  const side = h("aside", { class: "panel side", "aria-label": "Model and sampling" }, models.node, sampling.node, tools.node);
  const column = h("div", { class: "column" }, composer, result.node);

  show = () => {
    const run = currentRun();
    const isChat = draft.mode === "chat";
    const talks = isChat && (draft.turns.length > 0 || isLive(run));
    // A conversation is read from above, and its next message is typed below it.
    if (talks !== (column.lastChild === composer)) column[talks ? "prepend" : "append"](result.node);
    setShown(promptField, !isChat);
    setShown(systemField, isChat && !talks);
    setShown(messageField, isChat);
    setShown(tools.node, isChat);
    if (message.value !== draft.message) message.value = draft.message;
    runButton.disabled = isLive(run) || !draft.model;
    setText(runButton, isChat ? "Send" : "Run");
    setShown(stopButton, isLive(run));
    setShown(clear, Boolean(run || draft.turns.length) && !isLive(run));
    models.update();
    result.update();
  };
  root.append(h("h1", { class: "unseen" }, "Playground"), h("div", { class: "playground" }, column, side));
  const onKey = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !runButton.disabled) submit();
  };
  root.addEventListener("keydown", onKey);
  whenRunChanges(showSoon);
  goOn();
  show();
  return () => {
    root.removeEventListener("keydown", onKey);
    models.unwatch();
    show = () => {};
  };
}
