// Counters of the service over the last minutes, drawn while the page is open.
import { chart } from "../chart.js";
import { empty, errorBox, h } from "../dom.js";
import { count, duration, percent, rate } from "../format.js";
import { refresh, watch } from "../store.js";

const CHARTS = [
  { title: "Tokens per second", hint: "Of all jobs now, and of those that ended over the last 30 s", lines: [{ key: "tokensNow", name: "now" }, { key: "tokensPerSecond", name: "ended" }], format: rate },
  { title: "Time to first token", hint: "From admission, over the last 30 s", lines: [{ key: "ttft50", name: "p50" }, { key: "ttft95", name: "p95" }], format: duration },
  { title: "Queue", hint: "Jobs that wait, and all that have not ended", lines: [{ key: "queue", name: "waiting" }, { key: "live", name: "live" }], format: count, boundMin: 5 },
  { title: "Wait in the queue", hint: "Over the last 30 s", lines: [{ key: "wait50", name: "p50" }, { key: "wait95", name: "p95" }], format: duration },
  { title: "Decoding time", hint: "Of one job, over the last 30 s", lines: [{ key: "decode50", name: "p50" }, { key: "decode95", name: "p95" }], format: duration },
  { title: "Jobs per second", hint: "That ended, over the last 30 s", lines: [{ key: "jobsPerSecond", name: "jobs/s" }], format: rate },
  { title: "Cache", hint: "Pages in use, and prompt tokens found in it", lines: [{ key: "cache", name: "in use" }, { key: "hits", name: "prefix hits" }], format: percent, boundMin: 1 },
];

// Prompt tokens that workers found in their prefix caches, of all since they are ready.
export function hitsOf(pools) {
  const sum = (key) => pools.flatMap((pool) => pool.workers).reduce((total, worker) => total + (worker[key] ?? 0), 0);
  const hits = sum("prefix_hit_tokens");
  const all = hits + sum("prefix_miss_tokens");
  return all ? hits / all : undefined;
}

// Tokens per second of all jobs between two readings of their list; undefined before the second.
export class TokenRate {
  read(jobs, at) {
    const counts = new Map(jobs.map((job) => [job.job_id, job.tokens_out ?? 0]));
    const { counts: before, at: then } = this;
    if (before && at === then) return;
    Object.assign(this, { counts, at });
    if (!before) return;
    let tokens = 0;
    for (const [id, now] of counts) tokens += Math.max(0, now - (before.get(id) ?? 0));
    this.perSecond = (tokens * 1000) / (at - then);
  }
}

export function mount(root) {
  const problem = h("div");
  const charts = CHARTS.map(chart);
  const grid = h("div", { class: "plots" }, charts.map((each) => each.node));
  const nothing = h("div");
  root.append(h("h1", {}, "Plots"), problem, nothing, grid);
  let hits;
  const tokens = new TokenRate();
  // Only who may see jobs gets this line.
  const unwatchJobs = watch("jobs", ({ value, at }) => value && tokens.read(value.tasks, at));
  const unwatchPools = watch("pools", ({ value }) => (hits = value && hitsOf(value.pools)));
  const unwatch = watch("metrics", ({ value, error }) => {
    problem.replaceChildren(...(error ? [errorBox(error, () => refresh("metrics"))] : []));
    if (!value) return;
    const newest = value.points.at(-1);
    if (newest) newest.hits ??= hits;
    if (newest) newest.tokensNow ??= tokens.perSecond;
    nothing.replaceChildren(...(value.points.length > 1 ? [] : [empty("Measuring", "The first figures come with the second reading, in two seconds.")]));
    for (const each of charts) each.update(value.points);
  });
  return () => {
    unwatch();
    unwatchJobs();
    unwatchPools();
  };
}
