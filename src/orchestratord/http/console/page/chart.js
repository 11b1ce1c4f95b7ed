// Lines over time as SVG: the last minutes, one scale, the newest figure in words.
import { h, setAttribute, setText, svg } from "./dom.js";
import { clock, duration } from "./format.js";

const WIDTH = 320;
const HEIGHT = 96;
// As long as the page has looked, within these.
const WINDOW_MS_MIN = 60_000;
const WINDOW_MS_MAX = 10 * 60_000;

// A bound above `value` that people like to read: 1, 2 or 5 times a power of ten.
function niceBound(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((bound) => bound >= value);
}

// Lines of `key` through `points`, each a list of [x, y]: one ends where nothing was measured.
function linesOf(points, key, { from, to, bound }) {
  const lines = [];
  let line;
  for (const point of points) {
    const value = point[key];
    if (value === undefined) {
      line = undefined;
      continue;
    }
    if (!line) lines.push((line = []));
    line.push([(((point.at - from) / (to - from)) * WIDTH).toFixed(1), (HEIGHT - (Math.min(value, bound) / bound) * HEIGHT).toFixed(1)]);
  }
  return lines;
}

const pathOf = (lines) => lines.map((line) => `M${line.map(([x, y]) => `${x} ${y}`).join("L")}`).join("");
const areaOf = (lines) => lines.map((line) => `M${line[0][0]} ${HEIGHT}L${line.map(([x, y]) => `${x} ${y}`).join("L")}L${line.at(-1)[0]} ${HEIGHT}Z`).join("");

// `lines`: [{key, name}], at most three. `format` writes a figure. Returns {node, update(points)}.
export function chart({ title, hint, lines, format, boundMin = 0 }) {
  const paths = lines.map((_, i) => svg("path", { class: `line line-${i}`, "vector-effect": "non-scaling-stroke" }));
  const area = svg("path", { class: "area" });
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke", visibility: "hidden" });
  const grid = [0.25, 0.5, 0.75].map((part) => svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part, "vector-effect": "non-scaling-stroke" }));
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, area, grid, paths, cursor);
  const top = h("span", { class: "chart-top" });
  const figures = lines.map(({ name }, i) => {
    const value = h("b");
    return { value, node: h("span", { class: "figure" }, lines.length > 1 && h("i", { class: `key key-${i}` }), lines.length > 1 && `${name} `, value) };
  });
  const when = h("span", { class: "chart-when" });
  const node = h("section", { class: "panel chart" },
    h("h2", {}, title), h("p", { class: "hint" }, hint), h("div", { class: "figures" }, figures.map((f) => f.node), when),
    h("div", { class: "picture" }, picture, top));
  let shown = [];
  let windowMs = WINDOW_MS_MIN;
  let pointed;

  function show() {
    const point = pointed === undefined ? shown.at(-1) : shown.reduce((best, p) => (Math.abs(p.at - pointed) < Math.abs(best.at - pointed) ? p : best), shown[0]);
    lines.forEach(({ key }, i) => setText(figures[i].value, point?.[key] === undefined ? "–" : format(point[key])));
    setText(when, point && pointed !== undefined ? clock(point.at) : "");
  }

  picture.addEventListener("pointermove", (event) => {
    if (shown.length === 0) return;
    const box = picture.getBoundingClientRect();
    const part = (event.clientX - box.left) / box.width;
    pointed = shown.at(-1).at - windowMs * (1 - part);
    cursor.setAttribute("x1", part * WIDTH);
    cursor.setAttribute("x2", part * WIDTH);
    cursor.setAttribute("visibility", "visible");
    show();
  });
  picture.addEventListener("pointerleave", () => {
    pointed = undefined;
    cursor.setAttribute("visibility", "hidden");
    show();
  });

  return {
    node,
    update(points) {
      const to = points.at(-1)?.at ?? Date.now();
      windowMs = Math.min(WINDOW_MS_MAX, Math.max(WINDOW_MS_MIN, to - (points[0]?.at ?? to)));
      shown = points.filter((point) => point.at >= to - windowMs);
      const most = Math.max(boundMin, ...shown.flatMap((point) => lines.map(({ key }) => point[key] ?? 0)));
      const bound = niceBound(most);
      const drawn = lines.map(({ key }) => linesOf(shown, key, { from: to - windowMs, to, bound }));
      paths.forEach((path, i) => setAttribute(path, "d", pathOf(drawn[i])));
      setAttribute(area, "d", areaOf(drawn[0]));
      setText(top, most > 0 ? format(bound) : "");
      show();
      const now = lines.map(({ key, name }) => `${name} ${shown.at(-1)?.[key] === undefined ? "not measured" : format(shown.at(-1)[key])}`);
      setAttribute(picture, "aria-label", `${title}, last ${duration(windowMs)}; now ${now.join(", ")}`);
    },
  };
}
