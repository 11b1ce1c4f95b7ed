// The request of the playground as a command that does the same.
import { token } from "../api.js";
import { h, modal } from "../dom.js";
import { asOpenAi } from "./run.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curlOf(request) {
  const { seed, on_disconnect: _, ...rest } = request.tools ? { ...asOpenAi(request), stream: true } : request;
  const body = JSON.stringify(rest, null, 2);
  const withSeed = seed === undefined ? body : body.replace(/\n}$/, `,\n  "seed": ${seed}\n}`);
  const path = request.tools ? "/v1/chat/completions" : "/v2/tasks?stream=true";
  const access = token.get() ? ' \\\n  -H "Authorization: Bearer ${LLORCH_API_TOKEN:-$(cat "$LLORCH_API_TOKEN_FILE")}"' : "";
  return `curl -N ${quoted(location.origin + path)}${access} \\\n  -H 'Content-Type: application/json' -d ${quoted(withSeed)}`;
}

export function showCurl(request) {
  const command = curlOf(request);
  return modal("The same from a shell", (close) => {
    const copied = h("span", { class: "muted", role: "status" });
    const copy = h("button", { type: "button", class: "main", onclick: async () => {
      await navigator.clipboard.writeText(command).then(() => (copied.textContent = "Copied."), () => (copied.textContent = "The browser refuses; mark the text and copy it."));
    } }, "Copy");
    return h("div", { class: "curl" }, h("pre", { tabindex: "0", "aria-label": "Command" }, command),
      h("div", { class: "actions" }, copied, h("button", { type: "button", class: "quiet", onclick: () => close() }, "Close"), copy));
  });
}
