// What decided a result, and whether it comes out again.
import { h } from "../dom.js";

const NAMES = {
  model_digest: "Model", engine_build: "Engine build", numerics: "Numerics", device_class: "Device class", sampler: "Sampler",
  kv_dtype: "Cache type", seed: "Seed", prompt_sha256: "Prompt", parameters_sha256: "Parameters", output_sha256: "Output", tokens_out: "Tokens",
  speculation: "Speculation",
  partial: "Partial",
};
// Decides nothing of the result.
const NOT_COMPARED = ["speculation"];
// Two machines may differ in these; the output then may as well.
const CIRCUMSTANCES = ["model_digest", "engine_build", "numerics", "device_class", "sampler", "kv_dtype"];

export function receiptTable(receipt) {
  return h("table", { class: "facts" }, h("tbody", {}, Object.entries(NAMES).filter(([key]) => receipt[key] !== undefined).map(([key, name]) =>
    h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "hash" }, String(receipt[key]))))));
}

// Calls `again(seed)`, which runs the same request and gives its receipt; what came of it, as an element.
export async function verify(again, receipt) {
  const other = await again(String(receipt.seed));
  const differs = Object.keys(NAMES).filter((key) => !NOT_COMPARED.includes(key) && String(other[key]) !== String(receipt[key]));
  if (differs.length === 0) {
    return h("p", { class: "verdict good" }, h("strong", {}, "Same bytes."), ` ${receipt.tokens_out} tokens, their SHA-256 and all that decided them came out again.`);
  }
  const elsewhere = differs.filter((key) => CIRCUMSTANCES.includes(key));
  const why = elsewhere.length ? `It ran under other circumstances: ${elsewhere.map((key) => NAMES[key]).join(", ")}.`
    : "Under the same circumstances that is a defect: keep both receipts and report it.";
  return h("div", {}, h("p", { class: "verdict bad" }, h("strong", {}, "Not the same."), ` Different: ${differs.map((key) => NAMES[key]).join(", ")}. ${why}`), receiptTable(other));
}
