// Starts the console: theme, token, health, and which view is shown.
import { token, whenTokenIsMissing } from "./api.js";
import { announce, errorBox, setText } from "./dom.js";
import { forgetAll, refreshAll, watch } from "./store.js";

// A view is loaded when it is first shown: the page has its first picture sooner.
const VIEWS = {
  playground: () => import("./views/playground.js"),
  jobs: () => import("./views/jobs.js"),
  pools: () => import("./views/pools.js"),
  models: () => import("./views/models.js"),
  plots: () => import("./views/plots.js"),
  settings: () => import("./views/settings.js"),
  about: () => import("./views/about.js"),
};
const view = document.getElementById("view");
let chosen;
let mountView = () => {};
let unmount = () => {};

// "#/jobs/ID" -> ["jobs", "ID"]; what is no such link leads to the first view.
function place() {
  try {
    const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    return Object.hasOwn(VIEWS, name) ? [name, rest.join("/")] : ["playground", ""];
  } catch {
    return ["playground", ""]; // a link that was cut
  }
}

// A view that is shown already hears of another id by itself.
async function route() {
  const [name] = place();
  if (chosen === name) return;
  const isFirst = chosen === undefined;
  chosen = name;
  showChoice(name);
  let mount;
  try {
    ({ mount } = await VIEWS[name]());
  } catch {
    mount = (root) => root.append(errorBox(new Error("This view could not be loaded. Load the page again once the service answers.")));
  }
  if (chosen !== name) return; // another one was chosen meanwhile
  mountView = mount;
  view.className = `view-${name}`;
  showView();
  if (!isFirst) view.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function showView() {
  unmount();
  view.replaceChildren();
  unmount = mountView(view, place()[1]) ?? (() => {});
}

function showChoice(name) {
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) {
      link.setAttribute("aria-current", "page");
      document.title = `${link.textContent} · llama-orch`;
      link.scrollIntoView?.({ block: "nearest", inline: "nearest" });
    } else {
      link.removeAttribute("aria-current");
    }
  }
}

// So that they can be shown while the service does not answer.
function loadOtherViews() {
  for (const load of Object.values(VIEWS)) load().catch(() => {});
}

function showHealth() {
  const health = document.getElementById("health");
  const text = health.querySelector(".health-text");
  watch("health", ({ value, error }) => {
    const state = error ? (error.status === 401 ? "token" : "down") : value.status;
    const words = { healthy: "healthy", degraded: "degraded", stopping: "stopping", token: "needs a token", down: "not reachable" };
    if (health.dataset.state && health.dataset.state !== state) announce(`The service is ${words[state]}`);
    health.dataset.state = state;
    setText(text, words[state]);
    health.title = error ? error.message : value.reasons.map((reason) => reason.human).join(" ");
  });
}

// --- theme ---

const isDark = () => (document.documentElement.dataset.theme
  ? document.documentElement.dataset.theme === "dark"
  : matchMedia("(prefers-color-scheme: dark)").matches);

function showTheme() {
  const button = document.getElementById("theme");
  const name = () => {
    const next = isDark() ? "Light" : "Dark";
    setText(button, next);
    button.setAttribute("aria-label", `${next} theme`);
  };
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
}

// --- token ---

function showLogin() {
  const dialog = document.getElementById("login");
  const input = document.getElementById("login-token");
  const reason = document.getElementById("login-reason");
  const button = document.getElementById("token");
  const title = document.getElementById("login-title");
  let declined = false;
  const name = () => setText(button, token.get() ? "Forget token" : "Token");
  const change = (value) => {
    if (value) token.set(value);
    else token.forget();
    name();
    forgetAll();
    showView();
    refreshAll();
  };
  const ask = (why, heading) => {
    if (dialog.open) return;
    setText(title, heading);
    setText(reason, why);
    input.value = "";
    dialog.showModal();
  };
  whenTokenIsMissing((error, held) => {
    if (declined || token.get() !== held) return; // another token is there by now
    if (error.code === "BAD_TOKEN") change();
    ask(error.message, error.code === "BAD_TOKEN" ? "That token is not known here" : "This service needs a token");
  });
  button.addEventListener("click", () => {
    if (token.get()) {
      change();
    } else {
      ask("Send one if this service has been given tokens; it shows what that token's role may see.", "Use a token");
    }
  });
  document.getElementById("login-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const value = input.value.trim();
    declined = false;
    dialog.close("used");
    change(value);
  });
  document.getElementById("login-cancel").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    declined = dialog.returnValue !== "used";
    dialog.returnValue = "";
    input.value = "";
  });
  name();
}

showTheme();
showLogin();
showHealth();
watch("metrics", () => {}); // the plots have a past when they are opened
addEventListener("hashchange", route);
route();
setTimeout(loadOtherViews, 1000);
