// The Prometheus text of /metrics, and what its counters say over time.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

// Name -> [{labels, value}]
export function parseMetrics(text) {
  const out = new Map();
  for (const line of text.split("\n")) {
    const match = line[0] === "#" ? null : SAMPLE.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) labels[name] = value;
    const samples = out.get(match[1]) ?? [];
    samples.push({ labels, value: Number(match[3]) });
    out.set(match[1], samples);
  }
  return out;
}

const sum = (metrics, name) => (metrics.get(name) ?? []).reduce((total, sample) => total + sample.value, 0);

// Upper bound -> cumulative count, over all series of a histogram.
function bucketsOf(metrics, name) {
  const out = new Map();
  for (const { labels, value } of metrics.get(`${name}_bucket`) ?? []) {
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    out.set(bound, (out.get(bound) ?? 0) + value);
  }
  return out;
}

// Of what was observed between two readings of a histogram; undefined if nothing was.
export function quantile(before, after, q) {
  const bounds = [...after.keys()].sort((a, b) => a - b);
  const grown = bounds.map((bound) => after.get(bound) - (before?.get(bound) ?? 0));
  const total = grown.at(-1) ?? 0;
  if (total <= 0) return undefined;
  const wanted = q * total;
  for (let i = 0; i < bounds.length; ++i) {
    if (grown[i] < wanted) continue;
    const low = i === 0 ? 0 : bounds[i - 1];
    if (bounds[i] === Infinity) return low;
    const below = i === 0 ? 0 : grown[i - 1];
    return low + ((bounds[i] - low) * (wanted - below)) / (grown[i] - below);
  }
  return undefined;
}

const WINDOW_MS = 30_000; // over which rates and quantiles are taken
const KEPT_MS = 15 * 60_000;

// Turns readings into points of the plots.
export class Recorder {
  readings = [];
  points = [];

  record(metrics, at) {
    const reading = {
      at,
      tokens: sum(metrics, "tokens_out_total"),
      finished: sum(metrics, "orchd_tasks_finished_total"),
      ttft: bucketsOf(metrics, "latency_first_token_ms"),
      decode: bucketsOf(metrics, "latency_decode_ms"),
      wait: bucketsOf(metrics, "orchd_queue_wait_time_ms"),
    };
    const restarted = this.readings.length > 0 && reading.finished < this.readings.at(-1).finished;
    if (restarted) this.readings = [];
    this.readings.push(reading);
    while (this.readings.length > 2 && this.readings[1].at <= at - WINDOW_MS) this.readings.shift();
    const before = this.readings.length > 1 ? this.readings[0] : undefined;
    const perSecond = (key) => (before ? ((reading[key] - before[key]) * 1000) / (at - before.at) : undefined);
    const of = (key, q) => before && quantile(before[key], reading[key], q);
    const cache = metrics.get("kv_cache_usage_ratio") ?? [];
    this.points.push({
      at,
      tokensPerSecond: perSecond("tokens"),
      jobsPerSecond: perSecond("finished"),
      queue: sum(metrics, "orchd_queue_depth"),
      live: sum(metrics, "orchd_jobs_live"),
      ttft50: of("ttft", 0.5),
      ttft95: of("ttft", 0.95),
      decode50: of("decode", 0.5),
      decode95: of("decode", 0.95),
      wait50: of("wait", 0.5),
      wait95: of("wait", 0.95),
      cache: cache.length ? cache.reduce((total, sample) => total + sample.value, 0) / cache.length : undefined,
    });
    while (this.points[0].at < at - KEPT_MS) this.points.shift();
    return { points: this.points, metrics };
  }
}
