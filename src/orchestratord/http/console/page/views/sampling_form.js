// The fields of a request besides model and prompt. What is left empty is left out: the service's default holds.
import { field, h, setShown } from "../dom.js";

const NUMBERS = [
  { key: "max_tokens", label: "Max tokens", min: 1, step: 1, initial: "120", hint: "Empty: what the context has left" },
  { key: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, initial: "0.7", hint: "0 is greedy" },
  { key: "top_p", label: "Top p", min: 0, max: 1, step: 0.01 },
  { key: "top_k", label: "Top k", min: 0, step: 1 },
  { key: "min_p", label: "Min p", min: 0, max: 1, step: 0.01 },
  { key: "repetition_penalty", label: "Repetition penalty", min: 0, max: 2, step: 0.01 },
  { key: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.05 },
  { key: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.05 },
];
const ALWAYS_SHOWN = 2;

export class SamplingForm {
  constructor() {
    this.numbers = NUMBERS.map((spec) => ({
      ...spec,
      input: h("input", { type: "number", min: spec.min, max: spec.max, step: spec.step, inputmode: "decimal", value: spec.initial ?? "", placeholder: "default" }),
    }));
    this.seed = h("input", { type: "text", inputmode: "numeric", pattern: "[0-9]*", placeholder: "drawn", autocomplete: "off" });
    this.logprobs = h("input", { type: "checkbox", id: "logprobs" });
    this.stop = h("textarea", { rows: "2", placeholder: "one text a line", spellcheck: "false" });
    this.priority = h("select", {}, h("option", { value: "interactive" }, "interactive"), h("option", { value: "batch" }, "batch"));
    this.schema = h("textarea", { rows: "5", spellcheck: "false", class: "code", placeholder: '{"type": "object"}', oninput: () => this.checkSchema() });
    this.schemaError = h("p", { class: "field-error", role: "alert", hidden: true });
    const fields = this.numbers.map(({ label, input, hint }) => field(label, input, hint));
    this.node = h("div", { class: "sampling" },
      h("div", { class: "grid-2" }, fields.slice(0, ALWAYS_SHOWN), field("Seed", this.seed, "The receipt names it"), field("Priority", this.priority)),
      h("details", {}, h("summary", {}, "More sampling"), h("div", { class: "grid-2" }, fields.slice(ALWAYS_SHOWN)), field("Stop texts", this.stop),
        h("label", { class: "choice", for: "logprobs" }, this.logprobs, "Show how likely each token was")),
      h("details", {}, h("summary", {}, "Output by JSON Schema"), field("JSON Schema", this.schema, "The output is JSON that is valid under it"), this.schemaError));
  }

  // The schema, undefined for none. Throws for what is no JSON.
  parsedSchema() {
    const text = this.schema.value.trim();
    return text ? JSON.parse(text) : undefined;
  }

  checkSchema() {
    let problem = "";
    try {
      this.parsedSchema();
    } catch (error) {
      problem = `Not JSON: ${error.message}`;
    }
    this.schemaError.textContent = problem;
    setShown(this.schemaError, problem !== "");
    this.schema.setAttribute("aria-invalid", String(problem !== ""));
  }

  // What stands in the form, as members of a request. Throws an error with a code and a message.
  read() {
    const out = {};
    for (const { key, label, input } of this.numbers) {
      if (!input.validity.valid) throw { code: "INVALID_PARAMS", message: `${label}: ${input.validationMessage}` };
      if (input.value !== "") out[key] = Number(input.value);
    }
    if (!this.seed.validity.valid) throw { code: "INVALID_PARAMS", message: "Seed: digits only, at most 9223372036854775807." };
    if (this.seed.value.trim()) out.seed = this.seed.value.trim(); // a text: see api.js
    const stop = this.stop.value.split("\n").filter(Boolean);
    if (stop.length) out.stop = stop;
    if (this.logprobs.checked) Object.assign(out, { logprobs: true, top_logprobs: 4 });
    if (this.priority.value !== "interactive") out.priority = this.priority.value;
    try {
      const schema = this.parsedSchema();
      if (schema !== undefined) out.json_schema = schema;
    } catch (error) {
      throw { code: "INVALID_PARAMS", message: `JSON Schema: ${error.message}` };
    }
    return out;
  }
}
