// The life of a job on one line: waiting, starting, prompt, tokens, end.
import { h, setText } from "../dom.js";
import { duration } from "../format.js";

// [{name, kind, ms, hint}] of a job as /v2/tasks shows it. What has not ended lasts until `now`.
export function phasesOf(job, now) {
  const at = (text) => (text ? Date.parse(text) : undefined);
  const [submitted, dispatched, started, finished] = [job.submitted_at, job.dispatched_at, job.started_at, job.finished_at].map(at);
  const end = finished ?? now;
  const phases = [];
  const add = (name, kind, from, to, hint) => phases.push({ name, kind, ms: Math.max(0, to - from), hint });
  const left = dispatched ?? started ?? end;
  add("Queued", "queued", submitted, left, job.attempts > 1 ? "Until its last attempt was dispatched, earlier attempts included" : "Until a worker took it");
  if (dispatched === undefined && started === undefined) {
    if (!finished && job.predicted_start_ms) phases.push({ name: "Predicted wait", kind: "predicted", ms: job.predicted_start_ms, hint: "As orchestratord predicts" });
    return phases;
  }
  if (dispatched !== undefined && started !== undefined) add("Dispatch", "dispatch", dispatched, started, "From sending it to the worker's word that it began");
  if (started === undefined) {
    add("Dispatch", "dispatch", dispatched, end, "The worker has not said yet that it began");
    return phases;
  }
  const first = job.first_token_ms === undefined ? started : Math.min(end, started + job.first_token_ms);
  if (first > started) add("Prompt", "prompt", started, first, "Until the first token");
  add("Tokens", "tokens", first, end, finished ? "From the first token to the end" : "Still running");
  return phases;
}

// The bar with its legend. Returns {node, update(job)}.
export function timeline() {
  const bar = h("div", { class: "timeline", role: "img" });
  const legend = h("dl", { class: "timeline-legend" });
  return {
    node: h("div", {}, bar, legend),
    update(job) {
      const phases = phasesOf(job, Date.now());
      const total = phases.reduce((sum, phase) => sum + phase.ms, 0) || 1;
      bar.setAttribute("aria-label", phases.map((phase) => `${phase.name} ${duration(phase.ms)}`).join(", "));
      while (bar.children.length < phases.length) bar.append(h("span"));
      while (bar.children.length > phases.length) bar.lastChild.remove();
      while (legend.children.length < phases.length) legend.append(h("div", {}, h("dt", {}, h("i"), h("span")), h("dd")));
      while (legend.children.length > phases.length) legend.lastChild.remove();
      phases.forEach((phase, i) => {
        bar.children[i].className = `phase phase-${phase.kind}`;
        bar.children[i].style.flexGrow = String(Math.max(phase.ms / total, 0.004));
        const [dt, dd] = legend.children[i].children;
        legend.children[i].title = phase.hint;
        dt.firstChild.className = `key phase-${phase.kind}`;
        setText(dt.lastChild, phase.name);
        setText(dd, duration(phase.ms));
      });
    },
  };
}
