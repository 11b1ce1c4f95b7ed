// Pools, their devices byte by byte, their workers, and an operator's levers.
import { deleteJson, postJson } from "../api.js";
import { empty, errorBox, field, h, keyed, modal, setAttribute, setShown, setText } from "../dom.js";
import { ago, bytes, count, fileName, percent, plural, shortId } from "../format.js";
import { latest, refresh, watch } from "../store.js";

const DRAIN_MS = 30_000;

// --- memory ---

const devicesOf = (worker) => worker.gpu_id.split(",");

// What `worker` holds on `gpuId`: [{kind, bytes}].
export function partsOn(worker, gpuId) {
  const rank = devicesOf(worker).indexOf(gpuId);
  if (rank < 0) return [];
  const told = worker.memory_by_device?.[rank];
  if (told) {
    return [{ kind: "weights", bytes: told.weights_bytes }, { kind: "cache", bytes: told.cache_bytes }, { kind: "workspace", bytes: told.workspace_bytes }];
  }
  return [{ kind: "whole", bytes: worker.vram_bytes_by_device?.[rank] ?? worker.vram_bytes }];
}

const WORDS = { weights: "weights", cache: "cache", workspace: "workspace", whole: "a worker that starts", reserved: "reserved", free: "free", other: "other programs and headroom" };

// All bytes of a device: [{kind, bytes, label}], which add up to its total.
export function memoryMap(device, workers) {
  const parts = [];
  let ours = 0;
  for (const worker of workers) {
    for (const part of partsOn(worker, device.gpu_id)) {
      if (part.bytes === 0) continue;
      ours += part.bytes;
      parts.push({ ...part, label: `${fileName(worker.model_ref)}: ${WORDS[part.kind]} ${bytes(part.bytes)}` });
    }
  }
  const add = (kind, size) => size > 0 && parts.push({ kind, bytes: size, label: `${WORDS[kind]} ${bytes(size)}` });
  const reserved = Math.max(0, device.vram_allocated_bytes - ours);
  add("reserved", reserved);
  add("free", device.vram_available_bytes);
  add("other", device.vram_total_bytes - ours - reserved - device.vram_available_bytes);
  return parts;
}

// A bar with a segment for each part, `total` long.
function memoryBar(className) {
  const node = h("div", { class: `memory ${className}`, role: "img" });
  return {
    node,
    update(label, parts, total) {
      while (node.children.length < parts.length) node.append(h("span"));
      while (node.children.length > parts.length) node.lastChild.remove();
      parts.forEach((part, i) => {
        const segment = node.children[i];
        setAttribute(segment, "class", `part part-${part.kind}`);
        segment.style.flexGrow = String(part.bytes / total);
        setAttribute(segment, "title", part.label);
      });
      setAttribute(node, "aria-label", `${label}: ${parts.map((part) => part.label).join("; ")}`);
    },
  };
}

const ENLARGED_BELOW = 0.2; // of a device; what is in use is drawn again, as wide as the device
const IN_USE = new Set(["weights", "cache", "workspace", "whole", "reserved"]);

function makeDevice() {
  const name = h("strong");
  const about = h("span", { class: "muted" });
  const used = h("span", { class: "device-used" });
  const bar = memoryBar("");
  const enlarged = memoryBar("enlarged");
  const fault = h("p", { class: "field-error" });
  const legend = h("dl", { class: "legend" });
  const node = h("div", { class: "device" }, h("div", { class: "device-head" }, h("span", {}, name, " ", about), used), bar.node, enlarged.node, legend, fault);
  return {
    node,
    update({ device, workers }) {
      setText(name, device.gpu_id === "cpu" ? "CPU" : `GPU ${device.gpu_id}`);
      setText(about, `${device.model} · ${device.device_class}`);
      const parts = memoryMap(device, workers);
      setText(used, `${bytes(device.vram_total_bytes - device.vram_available_bytes)} of ${bytes(device.vram_total_bytes)} in use`);
      bar.update(`Memory of ${name.textContent}`, parts, device.vram_total_bytes);
      const inUse = parts.filter((part) => IN_USE.has(part.kind));
      const total = inUse.reduce((sum, part) => sum + part.bytes, 0);
      const isSmall = total > 0 && total < ENLARGED_BELOW * device.vram_total_bytes;
      setShown(enlarged.node, isSmall);
      if (isSmall) enlarged.update(`In use on ${name.textContent}, enlarged`, inUse, total);
      const sums = new Map();
      for (const part of parts) sums.set(part.kind, (sums.get(part.kind) ?? 0) + part.bytes);
      const known = JSON.stringify([...sums]);
      if (legend.dataset.known !== known) {
        legend.dataset.known = known;
        legend.replaceChildren(...[...sums].map(([kind, size]) => h("div", {}, h("dt", {}, h("i", { class: `key part-${kind}` }), WORDS[kind]), h("dd", {}, bytes(size)))));
      }
      setText(fault, device.healthy ? "" : device.fault ?? "The device is not healthy.");
      setShown(fault, !device.healthy);
    },
  };
}

// --- workers ---

function makeWorker() {
  const cells = Array.from({ length: 6 }, () => h("td"));
  const progress = h("progress", { max: "100", "aria-label": "Model load" });
  const status = h("span", { class: "status" });
  cells[1].append(status, progress);
  const node = h("tr", {}, cells);
  return {
    node,
    update(worker) {
      node.dataset.state = worker.status;
      setText(cells[0], fileName(worker.model_ref));
      setAttribute(cells[0], "title", `${worker.model_ref} · ${worker.worker_id}`);
      const loading = worker.status === "starting" ? (worker.load_percent ?? 0) : undefined;
      setText(status, loading === undefined ? worker.status : `loading ${loading} %`);
      setShown(progress, loading !== undefined);
      if (loading !== undefined) progress.value = loading;
      setText(cells[2], worker.gpu_id);
      setText(cells[3], bytes(worker.vram_bytes));
      setText(cells[4], worker.kv_pages_total ? `${count(worker.kv_pages_used)} of ${count(worker.kv_pages_total)} pages` : "–");
      const prompts = (worker.prefix_hit_tokens ?? 0) + (worker.prefix_miss_tokens ?? 0);
      setText(cells[5], prompts ? percent(worker.prefix_hit_tokens / prompts) : "–");
    },
  };
}

function workerTable() {
  const body = h("tbody");
  const update = keyed(body, (worker) => worker.worker_id, makeWorker);
  const heads = [["Worker of", ""], ["Status", ""], ["Device", ""], ["Memory", ""], ["Cache in use", "Pages of running jobs, at the last report"], ["Prefix hits", "Prompt tokens found in the prefix cache"]];
  const table = h("table", { class: "workers" }, h("thead", {}, h("tr", {}, heads.map(([name, title]) => h("th", { scope: "col", title }, name)))), body);
  const nothing = h("p", { class: "muted" }, "No worker: the next job of a model starts one.");
  return {
    node: h("div", { class: "table-wrap" }, table, nothing),
    update(workers) {
      setShown(table, workers.length > 0);
      setShown(nothing, workers.length === 0);
      update(workers);
    },
  };
}

// --- levers ---

const modelNames = () => (latest("models")?.models ?? []).map((model) => model.model_id);

function askReload(pool) {
  const select = h("select", {}, modelNames().map((name) => h("option", { value: name }, name)));
  const seconds = h("input", { type: "number", min: "0", step: "1", value: String(DRAIN_MS / 1000) });
  return modal(`Reload ${pool.pool_id}`, (close) => h("div", {},
    h("p", {}, "Another model takes the place of what the pool holds. If it does not start, the old one comes back."),
    field("Model", select), field("Seconds for running jobs", seconds, "After these, running jobs go back to the queue; none is lost."),
    h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", onclick: () => close() }, "Leave it"),
      h("button", { type: "button", class: "main", onclick: () => close({ new_model_ref: select.value, deadline_ms: Number(seconds.value) * 1000 }) }, "Reload"))));
}

function askPurge(pool) {
  const refs = [...new Set(pool.workers.map((worker) => worker.model_ref))];
  const boxes = refs.map((ref) => h("input", { type: "checkbox", value: ref, checked: true }));
  const force = h("input", { type: "checkbox" });
  return modal(`Purge ${pool.pool_id}`, (close) => h("div", {},
    h("p", {}, "Workers of these models stop and their memory becomes free. The pool goes on taking jobs, which may load a model again."),
    h("fieldset", {}, h("legend", {}, "Models"), boxes.map((box, i) => h("label", { class: "choice" }, box, fileName(refs[i])))),
    h("label", { class: "choice" }, force, "At once: running jobs go back to the queue"),
    h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", onclick: () => close() }, "Leave them"),
      h("button", { type: "button", class: "danger", onclick: () => {
        const models = boxes.filter((box) => box.checked).map((box) => box.value);
        close(models.length ? { purge_models: models, drain_first: !force.checked, force: force.checked } : undefined);
      } }, "Purge"))));
}

function levers(poolOf) {
  const outcome = h("div", { role: "status", class: "outcome" });
  const path = (lever) => `/v2/pools/${encodeURIComponent(poolOf().pool_id)}/${lever}`;
  const act = (label, className, action) => {
    const button = h("button", { type: "button", class: className, onclick: async () => {
      button.disabled = true;
      try {
        const reply = await action();
        if (reply) outcome.replaceChildren(`${reply.status}${reply.workers?.length ? `; to be stopped ${reply.when ?? "when idle"}: ${plural(reply.workers.length, "worker")}` : ""}`);
      } catch (error) {
        outcome.replaceChildren(errorBox(error));
      }
      button.disabled = false;
      refresh("pools");
    } }, label);
    return button;
  };
  const drain = act("Drain", "quiet", () => postJson(path("drain"), { deadline_ms: DRAIN_MS }));
  const undrain = act("End drain", "quiet", () => deleteJson(path("drain")));
  const reload = act("Reload …", "quiet", async () => {
    const order = await askReload(poolOf());
    return order && postJson(path("reload"), order);
  });
  const purge = act("Purge …", "quiet", async () => {
    const order = await askPurge(poolOf());
    return order && { ...(await postJson(path("purge"), order)), ...(order.force && { when: "at once" }) };
  });
  return {
    node: h("div", { class: "levers" }, drain, undrain, reload, purge),
    outcome,
    update(pool) {
      setShown(drain, pool.status !== "draining");
      setShown(undrain, pool.status === "draining");
      purge.disabled = pool.workers.length === 0;
    },
  };
}

function makePool(first) {
  let pool = first;
  const name = h("h2");
  const status = h("span", { class: "status" });
  const about = h("p", { class: "muted" });
  const devices = h("div", { class: "devices" });
  const updateDevices = keyed(devices, ({ device }) => device.gpu_id, makeDevice);
  const workers = workerTable();
  const control = levers(() => pool);
  const node = h("section", { class: "panel pool" }, h("div", { class: "pool-head" }, h("div", {}, name, " ", status, about), control.node), control.outcome, devices, workers.node);
  return {
    node,
    update(next) {
      pool = next;
      node.dataset.state = pool.status;
      setText(name, pool.pool_id);
      setText(status, pool.status);
      setText(about, `${pool.endpoint} · version ${pool.version} · heard of ${ago(pool.last_heartbeat_ms)}`);
      updateDevices(pool.gpus.map((device) => ({ device, workers: pool.workers })));
      workers.update(pool.workers);
      control.update(pool);
    },
  };
}

export function mount(root) {
  const problem = h("div");
  const nothing = h("div");
  const pools = h("div", { class: "pools" });
  const update = keyed(pools, (pool) => pool.pool_id, makePool);
  const clearOutcome = h("span", { role: "status", class: "muted" });
  const clear = h("button", { type: "button", class: "quiet", onclick: async () => {
    try {
      const reply = await postJson("/v2/cache/clear");
      setText(clearOutcome, `${plural(reply.cleared.length, "prefix cache")} cleared${reply.failed.length ? `; no answer from ${reply.failed.map(shortId).join(", ")}` : ""}.`);
    } catch (error) {
      clearOutcome.replaceChildren(errorBox(error));
    }
  } }, "Clear prefix caches");
  root.append(h("div", { class: "view-head" }, h("h1", {}, "Pools and devices"), h("div", { class: "actions" }, clearOutcome, clear)), problem, pools, nothing);
  const unwatchModels = watch("models", () => {});
  const unwatch = watch("pools", ({ value, error }) => {
    problem.replaceChildren(...(error ? [errorBox(error, () => refresh("pools"))] : []));
    if (!value) return;
    update(value.pools);
    nothing.replaceChildren(...(value.pools.length ? [] : [empty("No pool is registered", "No job can run until one is. Start pool-managerd on a node, or everything here with ", h("code", {}, "llorch up"), ".")]));
  });
  return () => {
    unwatch();
    unwatchModels();
  };
}
