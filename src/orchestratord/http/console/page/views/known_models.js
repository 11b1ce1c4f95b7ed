// The models that can be pulled by name, and whether a device here holds them.
import { getJson } from "../api.js";
import { h } from "../dom.js";
import { bytes } from "../format.js";

const FITS = { true: ["now", "fits a device here"], false: ["no", "too large for a device here"], undefined: ["later", "no device is known yet"] };

function row(model, pull) {
  const [state, words] = FITS[model.fits];
  return h("tr", { "data-fit": state },
    h("th", { scope: "row" }, model.model_id, h("p", { class: "hint" }, model.about)),
    h("td", {}, bytes(model.size_bytes)), h("td", {}, model.parameters), h("td", {}, model.licence),
    h("td", {}, h("span", { class: "status" }, words)),
    h("td", {}, h("button", { type: "button", class: "quiet", "aria-label": `Pull ${model.model_id}`, onclick: () => pull(model.model_id) }, "Pull")));
}

// `pull(name)` begins one. `names()` are those that are here. Returns {node, update()}.
export function knownModels(pull, names) {
  let models = [];
  const body = h("tbody");
  const heads = ["Model", "Size", "Parameters", "Licence", "Memory", ""];
  const node = h("details", { class: "panel known", open: true, hidden: true }, h("summary", {}, "Models that can be pulled by name"),
    h("div", { class: "table-wrap" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((name) => (name ? h("th", { scope: "col" }, name) : h("td"))))), body)));
  let drawn;
  const update = () => {
    const here = names();
    const left = models.filter((model) => !here.includes(model.model_id));
    const now = left.map((model) => model.model_id).join();
    if (now === drawn) return;
    drawn = now;
    body.replaceChildren(...left.map((model) => row(model, pull)));
    node.hidden = left.length === 0;
  };
  getJson("/v2/catalog/known").then((list) => {
    models = list.models;
    update();
  }, () => {});
  return { node, update, get models() { return models; } };
}
