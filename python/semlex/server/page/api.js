/**
 * Requests to the server; a request that fails raises a `Problem` with the server's message.
 */

const TOKEN = "semlex-token";

export class Problem extends Error {
  /**
   * @param {number} status 0 if no answer came.
   * @param {string} detail
   * @param {{field?: string, detail?: string}[]} [errors]
   */
  constructor(status, detail, errors = []) {
    super(detail);
    this.status = status;
    this.errors = errors;
  }

  /** @param {string} field @returns {boolean} Whether the problem is about a field of the request. */
  isAbout(field) {
    return this.errors.some((error) => (error.field ?? "").split(".").includes(field));
  }

  /** @returns {string} The sentences, for people. */
  get text() {
    const details = this.errors.map((error) => error.detail).filter((one) => one && one !== this.message);
    return [this.message, ...details].join("\n");
  }
}

/** Whether this tab has a token. */
export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

/** @param {string} token Kept until this tab is closed. */
export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/**
 * @param {string} path Relative to the page, so that it works below any path of a proxy.
 * @param {Record<string, string | number | boolean | null | undefined>} [query]
 * @returns {Promise<any>}
 */
export function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(given.map(([key, value]) => [key, String(value)]));
  return ask(given.length ? `${path}?${search}` : path, {});
}

/**
 * @param {string} path
 * @param {Record<string, any>} body Without what is undefined.
 * @returns {Promise<any>}
 */
export function post(path, body) {
  return ask(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
}

/** @param {string} path @param {RequestInit} options @returns {Promise<any>} */
async function ask(path, options) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Problem(0, "The server does not answer. Is it still running?");
  }
  const found = await response.json().catch(() => null);
  if (!response.ok) throw new Problem(response.status, found?.detail ?? response.statusText, found?.errors);
  return found;
}
