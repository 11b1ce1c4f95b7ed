// The configuration as orchestratord read it. It is changed in its file, not here.
import { errorBox, h, setText } from "../dom.js";
import { refresh, watch } from "../store.js";

const textOf = (value) => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

// [{key, value, initial, description, differs}] of every key of the schema, in its order.
export function rowsOf(settings, schema, path = "") {
  if (!schema.properties) {
    const value = textOf(settings);
    const initial = textOf(schema.default);
    const unset = value === "" || value === "[]" || value === "{}";
    return [{ key: path, value, initial, description: schema.description ?? "", differs: value !== initial && !(unset && initial === "") }];
  }
  return Object.entries(schema.properties).flatMap(([name, child]) => rowsOf(settings?.[name], child, path ? `${path}.${name}` : name));
}

export function mount(root) {
  const problem = h("div");
  const search = h("input", { type: "search", placeholder: "Find a key", "aria-label": "Find a key", oninput: () => draw() });
  const only = h("input", { type: "checkbox", onchange: () => draw() });
  const shown = h("span", { class: "muted", role: "status" });
  const body = h("tbody");
  const table = h("table", { class: "settings" }, h("thead", {}, h("tr", {}, ["Key", "Value", "Default"].map((name) => h("th", { scope: "col" }, name)))), body);
  root.append(h("h1", {}, "Settings"),
    h("p", { class: "muted" }, "As orchestratord goes by them. Names of files with secrets are left out."),
    h("div", { class: "toolbar" }, search, h("label", { class: "choice" }, only, "Only what differs from the default"), shown), problem, h("div", { class: "panel table-wrap" }, table));
  let rows = [];
  function draw() {
    const words = search.value.trim().toLowerCase();
    const found = rows.filter((row) => (!only.checked || row.differs) && (!words || `${row.key} ${row.description}`.toLowerCase().includes(words)));
    setText(shown, `${found.length} of ${rows.length} keys`);
    body.replaceChildren(...found.map((row) => h("tr", { class: row.differs ? "differs" : "" },
      h("th", { scope: "row" }, h("code", {}, row.key), h("p", { class: "hint" }, row.description)), h("td", { class: "value" }, row.value || "–"), h("td", { class: "muted" }, row.initial || "–"))));
  }
  return watch("settings", ({ value, error }) => {
    problem.replaceChildren(...(error ? [errorBox(error, () => refresh("settings"))] : []));
    if (!value) return;
    rows = rowsOf(value.settings, value.schema);
    draw();
  });
}
