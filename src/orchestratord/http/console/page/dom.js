// Elements. Strings become text nodes, never markup: what a model wrote may be hostile.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else if (name === "value" || name === "checked" || name === "disabled") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// h("button", {class: "main", onclick: run}, "Run")
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

// Sets text only where it differs: a node that stands still keeps its selection, and nothing is laid out again.
export function setText(node, text) {
  const wanted = String(text ?? "");
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export function setShown(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

// Keeps one child per item, by key, in the items' order. `make(item)` returns {node, update(item)}.
export function keyed(container, keyOf, make) {
  let rows = new Map();
  return (items) => {
    const next = new Map();
    for (const item of items) {
      const key = keyOf(item);
      const row = rows.get(key) ?? make(item);
      row.update(item);
      next.set(key, row);
    }
    for (const [key, row] of rows) if (!next.has(key)) row.node.remove();
    let at = container.firstChild;
    for (const row of next.values()) {
      if (row.node === at) at = at.nextSibling;
      else container.insertBefore(row.node, at);
    }
    rows = next;
  };
}

// A label and its control, tied together.
let labels = 0;
export function field(label, control, hint) {
  control.id ||= `field-${++labels}`;
  const parts = [h("label", { for: control.id }, label), control];
  if (hint) {
    const id = `${control.id}-hint`;
    control.setAttribute("aria-describedby", id);
    parts.push(h("p", { class: "hint", id }, hint));
  }
  return h("div", { class: "field" }, parts);
}

// Told to screen readers.
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

// What went wrong, in the API's words.
export function errorBox(error, again) {
  const after = error.retryAfterMs ? ` Try again in ${Math.ceil(error.retryAfterMs / 1000)} s.` : "";
  return h("div", { class: "error-box", role: "alert" },
    h("strong", {}, error.code ?? "ERROR"), " ", `${error.message}${after}`,
    error.correlationId && h("p", { class: "hint" }, "In the log: ", h("code", {}, error.correlationId)),
    again && h("button", { type: "button", class: "quiet", onclick: again }, "Try again"));
}

// A panel without content says what would fill it.
export function empty(title, ...next) {
  return h("div", { class: "empty" }, h("strong", {}, title), h("p", {}, next));
}

// A modal dialog with `content`; resolves to what `close` is called with, undefined for Escape.
export function modal(title, content) {
  return new Promise((resolve) => {
    const heading = h("h2", { id: "modal-title" }, title);
    const dialog = h("dialog", { "aria-labelledby": "modal-title" }, heading);
    let answer;
    const close = (value) => {
      answer = value;
      dialog.close();
    };
    dialog.append(content(close));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
