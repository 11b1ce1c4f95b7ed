// Which service this is, how it is, and what it can do.
import { errorBox, h } from "../dom.js";
import { bytes, count, duration, plural } from "../format.js";
import { watch } from "../store.js";

const row = (name, value) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value));
const table = (rows) => h("table", { class: "facts" }, h("tbody", {}, rows));
const limit = (value, format = count) => (value > 0 ? format(value) : "none");

const PANELS = {
  health: ["Health", (health) => [
    ...health.reasons.map((reason) => h("p", { class: "note" }, h("strong", {}, reason.code), " ", reason.human)),
    table([row("Status", health.status), row("Up for", duration(health.uptime_seconds * 1000)),
      ...health.pools.map((pool) => row(`Pool ${pool.pool_id}`, `${pool.status}, ${plural(pool.gpus, "device")}, ${plural(pool.workers, "worker")}`))])]],
  version: ["Version", (version) => [table([row("llama-orch", version.version), row("API", version.api_version), row("Build", h("code", {}, version.build)), row("Licence", "Apache-2.0")])]],
  capabilities: ["Limits", ({ limits, engines }) => [table([
    row("Queue", limit(limits.queue_capacity)), row("Context", limits.max_context_length ? `${count(limits.max_context_length)} tokens` : "no worker is ready"),
    row("Tokens of an answer", count(limits.max_tokens)), row("Prompt", bytes(limits.prompt_bytes_max)), row("Request", bytes(limits.request_bytes_max)),
    row("Requests a second", limit(limits.requests_per_second)), row("Tokens a second", limit(limits.tokens_per_second)), row("Sessions", count(limits.sessions_max)),
    ...engines.map((engine) => row("Engine build", h("code", {}, engine.engine_version)))])]],
};

export function mount(root) {
  const grid = h("div", { class: "about" });
  root.append(h("h1", {}, "About"), grid);
  const unwatch = Object.entries(PANELS).map(([name, [title, draw]]) => {
    const body = h("div");
    grid.append(h("section", { class: "panel" }, h("h2", {}, title), body));
    let known;
    return watch(name, ({ value, error }) => {
      const now = JSON.stringify([value, error?.message]);
      if (now === known) return;
      known = now;
      body.replaceChildren(...(error ? [errorBox(error)] : draw(value)));
    });
  });
  grid.append(h("section", { class: "panel" }, h("h2", {}, "What it promises"), h("ol", { class: "promises" },
    ["Same request, same bytes.", "Nothing accepted is lost.", "A stream survives crashes.", "Nothing silently leaves device memory.", "Prompts and outputs are not kept.", "Every wait and refusal explains itself."].map((promise) => h("li", {}, promise)))));
  return () => unwatch.forEach((end) => end());
}
