// The last minute of all workers: a row for each job that runs beside others, a bar for each job, coloured by what it did.
import { h, setAttribute, setShown } from "../dom.js";
import { duration, plural, shortId } from "../format.js";
import { phasesOf } from "./timeline.js";

const WINDOW_MS = 60_000;
const ROWS_MAX = 8;
const ROW_PX = 22;
const AXIS_PX = 18;
const FRAME_MS = 50;
const TICK_PX_MIN = 60; // between two times on the axis
const CHAR_PX = 7; // of a job's id, in a bar
const LABEL_CHARS_MIN = 8;

// What the theme's colours are now: a canvas does not read variables.
function paletteOf(probe) {
  const out = {};
  for (const name of ["warn", "workspace", "cache", "weights", "other", "surface", "line", "muted"]) {
    probe.style.color = `var(--${name})`;
    out[name] = getComputedStyle(probe).color;
  }
  return out;
}

const KINDS = { queued: "warn", dispatch: "workspace", prompt: "cache", tokens: "weights" };

// Bars of the window, each with the first row in which nothing else is at its time. Jobs come newest first.
export function layOut(jobs, now) {
  const from = now - WINDOW_MS;
  const ends = []; // of each row
  const bars = [];
  const began = jobs.filter((job) => job.dispatched_at && !(job.finished_at && Date.parse(job.finished_at) < from)).reverse();
  for (const job of began) {
    const begin = Date.parse(job.dispatched_at);
    const end = job.finished_at ? Date.parse(job.finished_at) : Infinity;
    let row = ends.findIndex((time) => time <= begin);
    if (row < 0) row = ends.length;
    if (row >= ROWS_MAX) continue;
    ends[row] = end;
    bars.push({ job, row, begin });
  }
  return { bars, rows: ends.length };
}

function drawBar(context, { job, row, begin }, { x, palette, now }) {
  const top = row * ROW_PX + 3;
  const height = ROW_PX - 6;
  let at = begin;
  for (const phase of phasesOf(job, now)) {
    if (phase.kind === "queued" || phase.kind === "predicted") continue;
    context.fillStyle = palette[job.status === "failed" || job.status === "cancelled" ? "other" : KINDS[phase.kind]];
    context.fillRect(x(at), top, Math.max(1.5, x(at + phase.ms) - x(at) - 0.5), height);
    at += phase.ms;
  }
  const room = Math.floor((x(at) - Math.max(0, x(begin)) - 5) / CHAR_PX);
  if (room < LABEL_CHARS_MIN) return;
  const id = shortId(job.task_id);
  context.fillStyle = palette.surface;
  context.fillText(id.length > room ? `${id.slice(0, room - 1)}…` : id, Math.max(0, x(begin)) + 5, top + height / 2 + 1);
}

// Returns {node, update(jobs), remove()}. `open(job)`: a bar was chosen.
export function activity(open) {
  const canvas = h("canvas", { role: "img" });
  const legend = h("dl", { class: "legend" }, [["dispatch", "dispatch"], ["prompt", "prompt"], ["tokens", "tokens"]].map(([kind, name]) =>
    h("div", {}, h("dt", {}, h("i", { class: `key phase-${kind}` }), name))));
  const node = h("section", { class: "panel activity", "aria-label": "Activity", hidden: true }, h("div", { class: "activity-head" }, h("h2", {}, "Last minute"), legend), canvas);
  let jobs = [];
  let laid = { bars: [], rows: 0 };
  let palette;
  let timer;

  function draw() {
    const now = Date.now();
    const width = canvas.clientWidth;
    const height = Math.max(1, laid.rows) * ROW_PX + AXIS_PX;
    const scale = devicePixelRatio;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext("2d");
    const x = (time) => width - ((now - time) / WINDOW_MS) * width;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "600 11px ui-monospace, monospace";
    context.textBaseline = "middle";
    const step = width / 6 >= TICK_PX_MIN ? 10_000 : 20_000;
    for (let ago = 0; ago <= WINDOW_MS; ago += step) {
      context.fillStyle = palette.line;
      context.fillRect(x(now - ago), 0, 1, height - AXIS_PX);
      if (ago === 0 || ago === WINDOW_MS) continue;
      context.fillStyle = palette.muted;
      context.fillText(`${ago / 1000} s ago`, x(now - ago) - 20, height - AXIS_PX / 2 + 2);
    }
    for (const bar of laid.bars) drawBar(context, bar, { x, palette, now });
  }

  canvas.addEventListener("click", (event) => {
    const now = Date.now();
    const time = now - WINDOW_MS * (1 - event.offsetX / canvas.clientWidth);
    const row = Math.floor(event.offsetY / ROW_PX);
    const hit = laid.bars.find((bar) => bar.row === row && time >= bar.begin && time <= (bar.job.finished_at ? Date.parse(bar.job.finished_at) : now) + 200);
    if (hit) open(hit.job);
  });

  return {
    node,
    update(all) {
      jobs = all;
      laid = layOut(jobs, Date.now());
      setShown(node, laid.bars.length > 0);
      palette = paletteOf(canvas);
      const running = laid.bars.filter(({ job }) => !job.finished_at).length;
      setAttribute(canvas, "aria-label", `Jobs of the last ${duration(WINDOW_MS)}: ${plural(laid.bars.length, "job")}, of which ${running} run`);
      timer ??= setInterval(() => {
        if (!document.hidden && !node.hidden) draw();
      }, FRAME_MS);
      if (!node.hidden) draw();
    },
    remove() {
      clearInterval(timer);
    },
  };
}
