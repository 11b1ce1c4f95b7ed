// Lines over time as SVG: the last minutes, one scale, the newest figure in words.
import { h, setAttribute, setText, svg } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 320;
const HEIGHT = 96;

// A bound above `value` that people like to read: 1, 2 or 5 times a power of ten.
function niceBound(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((bound) => bound >= value);
}

// Line of `key` through `points`; it breaks where nothing was measured.
function pathOf(points, key, { from, to, bound }) {
  let path = "";
  let drawing = false;
  for (const point of points) {
    const value = point[key];
    if (value === undefined) {
      drawing = false;
      continue;
    }
    const x = ((point.at - from) / (to - from)) * WIDTH;
    const y = HEIGHT - (Math.min(value, bound) / bound) * HEIGHT;
    path += `${drawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    drawing = true;
  }
  return path;
}

// `lines`: [{key, name}], at most three. `format` writes a figure. Returns {node, update(points)}.
export function chart({ title, hint, lines, format, boundMin = 0, windowMs = 10 * 60_000 }) {
  const paths = lines.map((_, i) => svg("path", { class: `line line-${i}`, "vector-effect": "non-scaling-stroke" }));
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke", visibility: "hidden" });
  const grid = [0.25, 0.5, 0.75].map((part) => svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part, "vector-effect": "non-scaling-stroke" }));
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, grid, paths, cursor);
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
      shown = points.filter((point) => point.at >= to - windowMs);
      const most = Math.max(boundMin, ...shown.flatMap((point) => lines.map(({ key }) => point[key] ?? 0)));
      const bound = niceBound(most);
      paths.forEach((path, i) => setAttribute(path, "d", pathOf(shown, lines[i].key, { from: to - windowMs, to, bound })));
      setText(top, format(bound));
      show();
      const now = lines.map(({ key, name }) => `${name} ${shown.at(-1)?.[key] === undefined ? "not measured" : format(shown.at(-1)[key])}`);
      setAttribute(picture, "aria-label", `${title}, last ${windowMs / 60_000} minutes; now ${now.join(", ")}`);
    },
  };
}
