// The configured models, and where a worker of each would fit.
import { empty, errorBox, h, keyed, setText } from "../dom.js";
import { bytes, count, plural } from "../format.js";
import { refresh, watch } from "../store.js";

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

function makeModel() {
  const name = h("h2");
  const ref = h("p", { class: "muted ref" });
  const body = h("div");
  const node = h("section", { class: "panel model" }, name, ref, body);
  let known;
  return {
    node,
    update({ model, pools }) {
      const now = JSON.stringify([model, pools]);
      if (now === known) return;
      known = now;
      setText(name, model.model_id);
      setText(ref, model.model_ref);
      body.replaceChildren(model.facts ? factsOf(model.facts, pools) : h("p", { class: "note" }, h("strong", {}, model.reason?.code), " ", model.reason?.human ?? ""));
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
  root.append(h("h1", {}, "Models"), problem, list, nothing);
  let models;
  let pools = [];
  const draw = () => {
    if (!models) return;
    update(models.map((model) => ({ model, pools })));
    nothing.replaceChildren(...(models.length ? [] : [empty("No model has a name yet", "Name one in ", h("code", {}, "models.aliases"), ", or start with ", h("code", {}, "llorch up --model FILE"), ".")]));
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
    unwatchModels();
    unwatchPools();
  };
}
