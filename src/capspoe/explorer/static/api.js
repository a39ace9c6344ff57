// Talking to the server: one place that knows about errors, and "one request in flight, the latest wins".

const client = Math.random().toString(36).slice(2, 12);
const listeners = new Set();
let reachable = true;

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function onReachable(listener) {
  listeners.add(listener);
}

function setReachable(value) {
  if (value === reachable) return;
  reachable = value;
  for (const listener of listeners) listener(value);
}

async function request(path, options, lane = "") {
  let response, content;
  try {
    response = await fetch(path, { ...options, headers: { ...options.headers, "X-Client": client, "X-Lane": lane } });
    content = response.ok ? await response.json() : await response.json().catch(() => null);
  } catch {
    setReachable(false);
    throw new ApiError(0, "the server does not answer");
  }
  setReachable(true);
  if (!response.ok) throw new ApiError(response.status, content?.error ?? `status ${response.status}`);
  return content;
}

/** `patience` in milliseconds is for questions that are answered at once or not at all. */
export const get = (path, lane, patience = null) => request(path, patience ? { signal: AbortSignal.timeout(patience) } : {}, lane);

export const post = (path, body, lane) =>
  request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }, lane);

/** Calls run one after the other; of those asked for meanwhile only the last happens. */
export function latest(run) {
  let busy = false;
  let next = null;
  return async function call(...args) {
    if (busy) {
      next = args;
      return;
    }
    busy = true;
    try {
      await run(...args);
    } finally {
      busy = false;
      if (next) {
        const later = next;
        next = null;
        call(...later);
      }
    }
  };
}

export function debounce(run, milliseconds) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...args), milliseconds);
  };
}
