// All jobs with their reasons, and one in detail.
import { getJson, postJson } from "../api.js";
import { empty, errorBox, h, setAttribute, setShown, setText } from "../dom.js";
import { ago, count, duration, fileName, moment, shortId } from "../format.js";
import { latest, refresh, watch } from "../store.js";
import { VirtualList } from "../virtual_list.js";
import { activity } from "./activity.js";
import { receiptTable } from "./receipt.js";
import { timeline } from "./timeline.js";

const ROW_HEIGHT = 46;
const LIVE = new Set(["queued", "dispatched", "running"]);
const FILTERS = {
  all: () => true,
  waiting: (job) => job.status === "queued",
  running: (job) => job.status === "dispatched" || job.status === "running",
  failed: (job) => job.status === "failed",
  ended: (job) => !LIVE.has(job.status),
};
const HEADS = [["Status", ""], ["Job", "job-id"], ["Model", ""], ["Tenant", "job-tenant"], ["How it stands", "job-why"], ["Tokens in → out", "job-tokens"], ["Submitted", "job-age"]];
const chosen = { filter: "all", words: "" };

const errorOfJob = (job) => ({ ...job.error, correlationId: job.error.correlation_id, retryAfterMs: job.error.retry_after_ms });

// One line that says how the job stands and why.
function standing(job) {
  if (job.status === "queued") {
    const start = job.predicted_start_ms ? `starts in ${duration(job.predicted_start_ms)} · ` : "";
    return `${start}${job.reason?.human ?? "waits"}`;
  }
  if (job.status === "dispatched") return `sent to ${job.worker_id ? shortId(job.worker_id) : "a worker"}`;
  if (job.status === "running") return `on ${job.pool_id ?? "a pool"} for ${duration(Date.now() - Date.parse(job.started_at))}`;
  if (job.status === "completed") return `${job.stop_reason?.replace("_", " ") ?? "ended"} after ${duration(Date.parse(job.finished_at) - Date.parse(job.submitted_at))}`;
  return job.error ? `${job.error.code}: ${job.error.message}` : job.status;
}

function makeRow() {
  const parts = {
    status: h("span", { class: "status" }), id: h("span", { class: "job-id" }), model: h("span", { class: "job-model" }),
    tenant: h("span", { class: "job-tenant" }), why: h("span", { class: "job-why" }), tokens: h("span", { class: "job-tokens" }), age: h("span", { class: "job-age" }),
  };
  const node = h("div", { class: "job" }, Object.values(parts));
  return {
    node,
    update(job) {
      node.dataset.state = job.status;
      setText(parts.status, job.status === "queued" && job.queue_position !== undefined ? `queued ${job.queue_position + 1}` : job.status);
      setText(parts.id, shortId(job.task_id));
      setAttribute(parts.id, "title", job.task_id);
      setText(parts.model, job.model.startsWith("file:") ? fileName(job.model) : job.model);
      setText(parts.tenant, job.tenant_id ?? "");
      setText(parts.why, standing(job));
      setText(parts.tokens, `${count(job.tokens_in)} → ${count(job.tokens_out)}`);
      setText(parts.age, ago(Date.now() - Date.parse(job.submitted_at)));
    },
  };
}

function facts(job) {
  const rows = [
    ["Job", job.job_id], ["Task", job.task_id !== job.job_id && job.task_id], ["Session", job.session_id], ["Tenant", job.tenant_id], ["Model", job.model],
    ["Resolved to", job.model_ref !== job.model && job.model_ref], ["Priority", job.priority], ["Submitted", moment(job.submitted_at)],
    ["Attempts", count(job.attempts)], ["Pool", job.pool_id], ["Worker", job.worker_id], ["Tokens", `${count(job.tokens_in)} in, ${count(job.tokens_out)} out`],
    ["Ended by", job.stop_reason?.replace("_", " ")], ["If the client leaves", job.on_disconnect], ["Last event", job.last_event_id],
    ["Placement", job.placement && JSON.stringify(job.placement)],
  ];
  return h("table", { class: "facts" }, h("tbody", {}, rows.filter(([, value]) => value).map(([name, value]) =>
    h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))));
}

function detailPanel(close) {
  const title = h("h2");
  const state = h("span", { class: "status" });
  const line = timeline();
  const body = h("div");
  const progress = h("progress", { max: "100", "aria-label": "Model load" });
  const cancel = h("button", { type: "button", class: "danger" }, "Cancel job");
  const problem = h("div");
  const node = h("section", { class: "panel detail", "aria-label": "Job", hidden: true },
    h("div", { class: "detail-head" }, title, state, h("button", { type: "button", class: "quiet", onclick: close }, "Close")), line.node, progress, body, problem, h("div", { class: "actions" }, cancel));
  let shown;
  let known;
  cancel.addEventListener("click", async () => {
    cancel.disabled = true;
    await postJson(`/v2/tasks/${shown}/cancel`).catch((error) => problem.replaceChildren(errorBox(error)));
    refresh("jobs");
  });
  return {
    node,
    update(job) {
      setShown(node, Boolean(job));
      if (!job) return;
      if (shown !== job.job_id) problem.replaceChildren();
      shown = job.job_id;
      setText(title, shortId(job.task_id));
      node.dataset.state = job.status;
      setText(state, job.status);
      line.update(job);
      const loading = job.reason?.load_percent;
      setShown(progress, loading !== undefined);
      if (loading !== undefined) progress.value = loading;
      cancel.disabled = false;
      setShown(cancel, LIVE.has(job.status));
      const now = JSON.stringify(job);
      if (now === known) return;
      known = now;
      body.replaceChildren(
        ...(job.status === "queued" && job.reason ? [h("p", { class: "note" }, h("strong", {}, job.reason.code), " ", standing(job))] : []),
        ...(job.error ? [errorBox(errorOfJob(job))] : []), facts(job),
        ...(job.receipt ? [h("details", { open: true }, h("summary", {}, "Receipt"), receiptTable(job.receipt))] : []));
    },
    showError(error) {
      setShown(node, true);
      known = undefined;
      setText(title, "No such job");
      setText(state, "");
      body.replaceChildren(errorBox(error));
      setShown(cancel, false);
    },
  };
}

function filterBar(changed) {
  const counts = {};
  const buttons = Object.keys(FILTERS).map((name) => {
    counts[name] = h("b");
    return h("button", { type: "button", class: "chip", "data-filter": name, onclick: () => {
      chosen.filter = name;
      changed();
    } }, name, " ", counts[name]);
  });
  const search = h("input", { type: "search", placeholder: "Id or model", "aria-label": "Find jobs by id or model", value: chosen.words, oninput: () => {
    chosen.words = search.value;
    changed();
  } });
  const bound = h("span", { class: "muted" });
  return {
    node: h("div", { class: "toolbar" }, h("div", { class: "chips", role: "group", "aria-label": "Jobs shown" }, buttons), bound, search),
    update(jobs, areAll) {
      setText(bound, areAll ? "" : `The newest ${count(jobs.length)} jobs`);
      for (const button of buttons) {
        const name = button.dataset.filter;
        button.setAttribute("aria-pressed", String(name === chosen.filter));
        setText(counts[name], count(jobs.filter(FILTERS[name]).length));
      }
    },
  };
}

export function mount(root, firstId) {
  let selected = firstId;
  let all = [];
  let areAll = true;
  let heard = {}; // {id, job}: the selected job as it was last told
  const open = (id) => {
    const target = id ? `#/jobs/${encodeURIComponent(id)}` : "#/jobs";
    if (location.hash !== target) location.replace(target);
    select(id);
  };
  const list = new VirtualList({ label: "Jobs", rowHeight: ROW_HEIGHT, keyOf: (job) => job.job_id, makeRow, open: (job) => open(job.job_id) });
  const detail = detailPanel(() => {
    open("");
    list.node.focus();
  });
  const filters = filterBar(() => draw());
  const nothing = h("div");
  const problem = h("div");
  const lately = activity((job) => open(job.job_id));
  const heads = h("div", { class: "job job-heads", "aria-hidden": "true" }, HEADS.map(([name, className]) => h("span", { class: className }, name)));
  const panels = h("div", { class: "jobs" }, h("div", { class: "panel list-panel" }, heads, list.node, nothing), detail.node);
  root.append(h("h1", {}, "Jobs"), lately.node, filters.node, problem, panels);

  function draw() {
    filters.update(all, areAll);
    const words = chosen.words.trim().toLowerCase();
    const shown = all.filter(FILTERS[chosen.filter]).filter((job) => !words || `${job.job_id} ${job.task_id} ${job.model} ${job.tenant_id ?? ""}`.toLowerCase().includes(words));
    panels.classList.toggle("of-tenants", all.some((job) => job.tenant_id));
    list.setItems(shown);
    setShown(list.node, shown.length > 0);
    setShown(heads, shown.length > 0);
    const why = all.length === 0 ? empty("No jobs yet", "Type a prompt in the ", h("a", { href: "#/playground" }, "playground"), ", or send one to /v2/tasks.")
      : empty("No job matches", areAll ? "Of " : "Of the newest ", count(all.length), " jobs none is shown by this filter.");
    nothing.replaceChildren(...(shown.length === 0 && latest("jobs") ? [why] : []));
    const job = all.find((each) => each.job_id === selected) ?? (heard.id === selected ? heard.job : undefined);
    if (job) heard = { id: selected, job };
    if (job || !selected) detail.update(job);
  }

  // A job older than the list is asked for by itself.
  async function ask() {
    const id = selected;
    if (!id || !latest("jobs") || all.some((job) => job.job_id === id)) return;
    try {
      const job = await getJson(`/v2/tasks/${encodeURIComponent(id)}`);
      if (selected !== id) return;
      heard = { id, job };
      draw();
    } catch (error) {
      if (selected !== id || (heard.id === id && error.retriable)) return;
      heard = {};
      detail.showError(error);
    }
  }
  function select(id) {
    selected = id;
    list.setSelected(id);
    draw();
    ask();
  }
  let selectedOnce = false;
  const unwatch = watch("jobs", ({ value, error }) => {
    problem.replaceChildren(...(error ? [errorBox(error, () => refresh("jobs"))] : []));
    if (!value) return;
    all = value.tasks;
    areAll = !value.next_before;
    lately.update(all);
    draw();
    if (!selectedOnce) select(selected);
    else if (!error && heard.id === selected && LIVE.has(heard.job?.status)) ask();
    selectedOnce = true;
  });
  const onHash = () => {
    const [, name, id] = location.hash.split("/");
    if (name === "jobs" && decodeURIComponent(id ?? "") !== (selected ?? "")) select(decodeURIComponent(id ?? ""));
  };
  addEventListener("hashchange", onHash);
  list.setSelected(selected);
  return () => {
    unwatch();
    lately.remove();
    list.remove();
    removeEventListener("hashchange", onHash);
  };
}
