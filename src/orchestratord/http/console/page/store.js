// What the server says, asked again and again while somebody looks. Views watch resources; several watchers share one request.
import { ApiError, getJson, getText } from "./api.js";
import { parseMetrics, Recorder } from "./metrics.js";

const SLOW_READ_MS = 45_000; // orchestratord waits 30 s for a pool

let recorder = new Recorder();

const RESOURCES = {
  health: { read: () => getJson("/v2/health"), everyMs: () => 3000 },
  version: { read: () => getJson("/v2/meta/version"), everyMs: () => 60_000 },
  capabilities: { read: () => getJson("/v2/meta/capabilities"), everyMs: () => 10_000 },
  settings: { read: () => getJson("/v2/meta/settings"), everyMs: () => 60_000 },
  models: {
    read: () => getJson("/v2/catalog/models?facts=true", { limitMs: SLOW_READ_MS }),
    everyMs: (list) => (list?.models.some((model) => model.pull) ? 2500 : 10_000),
  },
  pools: { read: () => getJson("/v2/pools"), everyMs: () => 1500 },
  // A long list is asked for less often, so that it costs the server no more than a short one.
  jobs: { read: () => getJson("/v2/tasks?limit=1000"), everyMs: (jobs) => (jobs?.tasks.length > 200 ? 2500 : 1000) },
  metrics: {
    read: async () => recorder.record(parseMetrics(await getText("/metrics")), Date.now()),
    everyMs: () => 2000,
  },
};

const states = new Map(Object.keys(RESOURCES).map((name) => [name, { value: undefined, error: undefined, at: 0, reader: 0, watchers: new Set() }]));

function tell(name) {
  const state = states.get(name);
  for (const watcher of [...state.watchers]) watcher(state);
}

async function ask(name) {
  const state = states.get(name);
  clearTimeout(state.timer);
  state.timer = undefined;
  if (state.asking || state.watchers.size === 0 || document.hidden) return;
  state.asking = true;
  const { reader } = state;
  let value, error;
  try {
    value = await RESOURCES[name].read();
  } catch (cause) {
    if (!(cause instanceof ApiError)) console.error(cause);
    error = cause;
  }
  if (reader !== state.reader) return; // it is what another token was shown
  if (!error) state.value = value;
  state.error = error;
  state.asking = false;
  state.at = Date.now();
  tell(name);
  if (state.watchers.size > 0) {
    const refused = [401, 403, 429].includes(state.error?.status);
    state.timer = setTimeout(ask, refused ? 30_000 : RESOURCES[name].everyMs(state.value), name);
  }
}

// Calls `watcher({value, error, at})` now if something is known, and after every answer. Returns what ends it.
export function watch(name, watcher) {
  const state = states.get(name);
  state.watchers.add(watcher);
  if (state.value !== undefined || state.error) watcher(state);
  ask(name);
  return () => state.watchers.delete(watcher);
}

export const latest = (name) => states.get(name).value;

// Asks now, because something was just changed.
export function refresh(...names) {
  for (const name of names) ask(name);
}

export const refreshAll = () => refresh(...states.keys());

// With another token it is another reader, who is shown nothing of what the last one was.
export function forgetAll() {
  recorder = new Recorder();
  for (const state of states.values()) {
    clearTimeout(state.timer);
    Object.assign(state, { value: undefined, error: undefined, asking: false, timer: undefined, reader: state.reader + 1 });
  }
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refreshAll();
});
