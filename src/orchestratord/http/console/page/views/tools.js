// Tools that a chat offers its model, the calls that come of them, and the results that go back.
import { field, h, setShown } from "../dom.js";

const EXAMPLE = [{
  type: "function",
  function: {
    name: "weather",
    description: "The weather of a place now",
    parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
  },
}];

export class ToolsForm {
  constructor() {
    this.text = h("textarea", { rows: "6", spellcheck: "false", class: "code", placeholder: '[{"type": "function", "function": {…}}]', oninput: () => this.check() });
    this.choice = h("select", {}, h("option", { value: "auto" }, "the model decides"), h("option", { value: "required" }, "it must call one"), h("option", { value: "none" }, "it must not call"));
    this.problem = h("p", { class: "field-error", role: "alert", hidden: true });
    const example = h("button", { type: "button", class: "quiet", onclick: () => {
      this.text.value = JSON.stringify(EXAMPLE, null, 2);
      this.check();
    } }, "Example");
    this.node = h("details", { class: "tools" }, h("summary", {}, "Tools"),
      field("Tools", this.text, "A list as in the OpenAI API. The model may call them; you answer in their place"), this.problem, field("Calls", this.choice), example);
  }

  parsed() {
    const text = this.text.value.trim();
    const tools = text ? JSON.parse(text) : [];
    if (!Array.isArray(tools)) throw new Error("a list is needed");
    return tools.length ? tools : undefined;
  }

  check() {
    let problem = "";
    try {
      this.parsed();
    } catch (error) {
      problem = `Tools: ${error.message}`;
    }
    this.problem.textContent = problem;
    setShown(this.problem, problem !== "");
    this.text.setAttribute("aria-invalid", String(problem !== ""));
  }

  // What stands in the form, as members of a request. Throws an error with a code and a message.
  read() {
    try {
      const tools = this.parsed();
      return tools ? { tools, tool_choice: this.choice.value } : {};
    } catch (error) {
      throw { code: "INVALID_PARAMS", message: `Tools: ${error.message}` };
    }
  }
}

const readable = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
};

export const callCard = (call) => h("div", { class: "call" }, h("strong", {}, call.function.name), h("pre", {}, readable(call.function.arguments)));

// The calls at the end of `turns` that nobody has answered.
export function openCalls(turns) {
  const last = turns.findLastIndex((turn) => turn.tool_calls);
  if (last < 0 || turns.slice(last + 1).some((turn) => turn.role !== "tool")) return [];
  const answered = new Set(turns.slice(last + 1).map((turn) => turn.tool_call_id));
  return turns[last].tool_calls.filter((call) => !answered.has(call.id));
}

const typed = new WeakMap(); // call -> its result as far as it was typed: the form may be made anew

// A form with a field per open call; `answer([{call, content}])` gets all of them at once.
export function resultForm(calls, answer) {
  const fields = calls.map((call) => ({ call, input: h("textarea", {
    rows: "2", class: "code", spellcheck: "false", required: true, value: typed.get(call), oninput: (event) => typed.set(call, event.target.value),
  }) }));
  return h("form", { class: "results", onsubmit: (event) => {
    event.preventDefault();
    answer(fields.map(({ call, input }) => ({ call, content: input.value })));
  } }, fields.map(({ call, input }) => field(`Result of ${call.function.name}`, input)), h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Send results")));
}
