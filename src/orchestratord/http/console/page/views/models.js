// The models that have a name, how far their pulls are, and where a worker of each would fit.
import { deleteJson, getJson, postJson } from "../api.js";
import { announce, empty, errorBox, field, h, keyed, modal, setShown, setText } from "../dom.js";
import { bytes, count, duration, percent, plural } from "../format.js";
import { latest, refresh, watch } from "../store.js";
import { knownModels } from "./known_models.js";

// How `facts` stands to `device`: {state, words}. Numbers are the pool's.
export function fitOn(facts, device, workers) {
  const needs = facts.memory_bytes;
  const here = workers.filter((worker) => worker.model_digest === facts.digest && worker.gpu_id.split(",").includes(device.gpu_id));
  if (here.length) return { state: "here", words: `${plural(here.length, "worker")} here` };
  if (!device.healthy) return { state: "no", words: device.fault ?? "the device is not healthy" };
  if (needs <= device.vram_available_bytes) return { state: "now", words: `fits now, ${bytes(device.vram_available_bytes - needs)} stay free` };
  const potential = device.vram_available_bytes + device.vram_allocated_bytes;
  if (needs <= potential) return { state: "later", words: `fits once idle workers leave: ${bytes(needs - device.vram_available_bytes)} short now` };
  return { state: "no", words: `needs ${bytes(needs)}, could have ${bytes(potential)}` };
}

const FOLLOW_MS = 500;
const LOST_MS = 60_000; // without an answer that says how a pull is
const pathOf = (name, what = "") => `/v2/catalog/models/${encodeURIComponent(name)}${what}`;

// "fetching 40 %, 12 MiB of 30 MiB, 3 MiB/s, 6 s left"
function progressOf(pull) {
  if (!pull.bytes_total) return pull.state;
  const left = pull.eta_ms === undefined ? "" : `, ${duration(pull.eta_ms)} left`;
  return `${pull.state} ${percent(pull.bytes_done / pull.bytes_total)}, ${bytes(pull.bytes_done)} of ${bytes(pull.bytes_total)}, ${bytes(pull.bytes_per_second)}/s${left}`;
}

// Names and references that can be pulled, and the pull that this page began last.
function pullForm() {
  const known = h("datalist", { id: "known-models" });
  const list = knownModels((name) => {
    wanted.value = name;
    form.requestSubmit();
  }, () => (latest("models")?.models ?? []).map((model) => model.model_id));
  const wanted = h("input", { type: "text", list: known.id, required: true, autocomplete: "off", spellcheck: "false", placeholder: "smollm2" });
  const called = h("input", { type: "text", autocomplete: "off", spellcheck: "false", pattern: "[A-Za-z0-9._:\\-]+" });
  const button = h("button", { type: "submit", class: "main" }, "Pull");
  const outcome = h("div", { role: "status", class: "outcome" });
  let isGone = false;
  async function follow(name) {
    let heardAt = Date.now();
    while (!isGone) {
      const model = await getJson(pathOf(name)).catch((error) => {
        if (!error.retriable || Date.now() - heardAt > LOST_MS) throw error;
      });
      if (model) {
        const { pull } = model;
        heardAt = Date.now();
        refresh("models");
        if (!pull) return `${name} is here.`;
        if (pull.state === "failed") throw { code: pull.error_code, message: pull.error_message };
        if (pull.state === "cancelled") return `${name} was not pulled.`;
        setText(outcome, `${name}: ${progressOf(pull)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, FOLLOW_MS));
    }
    return "";
  }
  async function pull(event) {
    event.preventDefault();
    button.disabled = true;
    try {
      const model = await postJson("/v2/catalog/models", { model_ref: wanted.value.trim(), ...(called.value.trim() && { model_id: called.value.trim() }) });
      const words = await follow(model.model_id);
      setText(outcome, words);
      announce(words);
      wanted.value = "";
      called.value = "";
    } catch (error) {
      outcome.replaceChildren(errorBox(error));
    }
    button.disabled = false;
  }
  const form = h("form", { class: "panel pull", onsubmit: pull },
    h("div", { class: "pull-line" }, field("Pull a model", wanted, "A name of the list below, or where it is: hf:ORG/REPO:Q4_K_M, https://…, oci:…, pypi:…, file:/…"),
      field("Name it", called, "Empty: as it is called there"), button), known, outcome);
  return {
    node: form,
    known: list.node,
    update() {
      list.update();
      if (known.childElementCount !== list.models.length) known.replaceChildren(...list.models.map((model) => h("option", { value: model.model_id }, bytes(model.size_bytes))));
    },
    remove() { isGone = true; },
  };
}

// What can be done with a model whose name was given at run time.
function modelActions(modelOf) {
  const problem = h("div");
  const act = (label, className, action) => h("button", { type: "button", class: className, onclick: async () => {
    problem.replaceChildren();
    await action().catch((error) => problem.replaceChildren(errorBox(error)));
    refresh("models");
  } }, label);
  const pin = act("Pin", "quiet", () => postJson(pathOf(modelOf().model_id, "/state"), { pinned: !modelOf().pinned }));
  const remove = act("Remove …", "quiet", async () => {
    const { model_id: name, size_bytes: size } = modelOf();
    const sure = await modal(`Remove ${name}`, (close) => h("div", {},
      h("p", {}, `The name goes, and ${size ? `${bytes(size)} that were fetched for it` : "what was fetched for it"} unless another name has them.`),
      h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", onclick: () => close() }, "Keep it"),
        h("button", { type: "button", class: "danger", onclick: () => close(true) }, "Remove"))));
    if (sure) await deleteJson(pathOf(name));
  });
  return {
    node: h("div", { class: "levers" }, pin, remove),
    problem,
    update(model) {
      setText(pin, model.pinned ? "Unpin" : "Pin");
      setShown(pin, Boolean(model.model_ref));
    },
  };
}

function makeModel() {
  let shown;
  const name = h("h2");
  const state = h("span", { class: "muted" });
  const ref = h("p", { class: "muted ref" });
  const bar = h("progress", { max: "100", "aria-label": "Pull" });
  const words = h("p", { class: "muted" });
  const body = h("div");
  const actions = modelActions(() => shown);
  const node = h("section", { class: "panel model" }, h("div", { class: "pool-head" }, h("div", {}, name, " ", state, ref), actions.node), actions.problem, bar, words, body);
  let known;
  return {
    node,
    update({ model, pools }) {
      const now = JSON.stringify([model, pools]);
      if (now === known) return;
      known = now;
      shown = model;
      setText(name, model.model_id);
      setText(state, [model.lifecycle_state === "Retired" && "retired", model.pinned && "pinned"].filter(Boolean).join(", "));
      setText(ref, model.model_ref || model.source);
      setShown(actions.node, model.source !== undefined);
      actions.update(model);
      setShown(bar, Boolean(model.pull));
      setShown(words, Boolean(model.pull));
      if (model.pull) {
        bar.value = model.pull.bytes_total ? (100 * model.pull.bytes_done) / model.pull.bytes_total : 0;
        setText(words, progressOf(model.pull));
      }
      const why = model.reason && h("p", { class: "note" }, h("strong", {}, model.reason.code), " ", model.reason.human);
      body.replaceChildren(...[model.facts ? factsOf(model.facts, pools) : why].filter(Boolean));
    },
  };
}

function factsOf(facts, pools) {
  const stat = (label, value) => h("div", {}, h("dt", {}, label), h("dd", {}, value));
  const rows = pools.flatMap((pool) => pool.gpus.map((device) => {
    const fit = fitOn(facts, device, pool.workers);
    return h("tr", { "data-fit": fit.state }, h("td", {}, `${pool.pool_id} / ${device.gpu_id}`), h("td", {}, h("span", { class: "status" }, fit.words)));
  }));
  return h("div", {},
    h("dl", { class: "stats" }, stat("family", facts.architecture), stat("format", facts.quant_kind), stat("file", bytes(facts.size_bytes)),
      stat("context", count(facts.context_length)), stat("vocabulary", count(facts.vocab_size)),
      stat(facts.devices > 1 ? `a worker, on each of ${facts.devices}` : "a worker takes", bytes(facts.memory_bytes)), stat("images", facts.images ? "yes" : "no")),
    rows.length > 0 && h("table", { class: "fits" }, h("caption", { class: "unseen" }, "Where it fits"), h("tbody", {}, rows)));
}

export function mount(root) {
  const problem = h("div");
  const nothing = h("div");
  const list = h("div", { class: "models" });
  const update = keyed(list, ({ model }) => model.model_id, makeModel);
  const form = pullForm();
  root.append(h("h1", {}, "Models"), form.node, problem, list, nothing, form.known);
  let models;
  let pools = [];
  const draw = () => {
    if (!models) return;
    form.update();
    update(models.map((model) => ({ model, pools })));
    nothing.replaceChildren(...(models.length ? [] : [empty("No model has a name yet", "Pull one, or start with ", h("code", {}, "llorch up --model FILE"), ".")]));
  };
  const unwatchModels = watch("models", ({ value, error }) => {
    problem.replaceChildren(...(error ? [errorBox(error, () => refresh("models"))] : []));
    models = value?.models ?? models;
    draw();
  });
  // A tenant may not see pools: the models are shown without them.
  const unwatchPools = watch("pools", ({ value }) => {
    pools = value?.pools ?? [];
    draw();
  });
  return () => {
    form.remove();
    unwatchModels();
    unwatchPools();
  };
}
