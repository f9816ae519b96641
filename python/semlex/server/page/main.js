/**
 * The page: shows a view of the chosen collection, and asks for a token if the server needs one.
 */

import { get, hasToken, setToken } from "./api.js";
import { collectionsView } from "./collections.js";
import { documentsView } from "./documents.js";
import { fill, h, own, say } from "./dom.js";
import { searchView } from "./searching.js";

/** @type {Record<string, (app: any, place: URLSearchParams) => HTMLElement>} */
const VIEWS = { search: searchView, documents: documentsView, collections: collectionsView };
const TITLES = { search: "Search", documents: "Documents", collections: "Collections and jobs" };

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const chooser = /** @type {HTMLSelectElement} */ (document.getElementById("collection"));
/** @type {any} */
let about = null;
/** @type {any} */
let view = null;

/** What views share. */
const app = {
  /** @type {any[]} With their counts. */
  collections: [],
  collection: () => chooser.value,
  /** Whether the caller's judgements are stored. */
  stores: () => about.stores,
  /** Whether the caller may cancel and retry the jobs of a kind. @param {string} kind */
  changes: (kind) => about.changes.includes(kind),

  /** Notes in the address what is shown. @param {string} name @param {Record<string, string | null>} given */
  note(name, given) {
    const kept = Object.entries({ collection: chooser.value, ...given }).filter(([, value]) => value);
    history.replaceState(null, "", `#${name}?${new URLSearchParams(/** @type {[string, string][]} */ (kept))}`);
  },

  /**
   * Fills a place with what is found, or with what went wrong.
   * @param {Promise<any>} wanted @param {HTMLElement} place @param {(found: any) => any} make
   */
  async show(wanted, place, make) {
    try {
      fill(place, make(await wanted));
    } catch (error) {
      if (!app.refused(error)) fill(place, wrong(error));
    }
  },

  /** Whether a token is missing; then one is asked for. @param {any} error */
  refused(error) {
    if (error.status !== 401) return false;
    askForToken();
    return true;
  },
};

/** @param {any} error */
function wrong(error) {
  return h("p", { class: "error", role: "alert" }, error.text ?? String(error));
}

function askForToken() {
  const why = hasToken()
    ? "The server does not know this token. Check it, or ask the operator of the server."
    : "This server needs a token. The operator of the server makes one with semlex serve token add NAME.";
  const input = /** @type {HTMLInputElement} */ (h("input", { id: "token", type: "password", autocomplete: "off" }));
  const onSubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    setToken(input.value.trim());
    start();
  };
  fill(main, h("form", { class: "line", "aria-label": "Token", on: { submit: onSubmit } },
    h("p", { role: "alert" }, why), h("label", { for: "token" }, "Token"), input, h("button", {}, "Continue")));
  input.focus();
}

/** Reads what there is, and shows what the address says. */
async function start() {
  try {
    about = await get("v1/page");
    app.collections = (await get("v1/collections")).collections;
    const names = app.collections.map((one) => one.name);
    if (names.length === 0 && about.collection === null) {
      fill(main, h("p", { role: "alert" }, "This token gives access to no collection."));
      return;
    }
    if (names.length === 0) names.push(about.collection);
    fill(chooser, names.map((/** @type {string} */ name) => h("option", { value: name }, name)));
    chooser.value = names.includes(about.collection) ? about.collection : names[0];
    route();
  } catch (error) {
    if (!app.refused(error)) fill(main, wrong(error));
  }
}

function route() {
  const [name, query] = location.hash.slice(1).split(/\?(.*)/s);
  const shown = name in VIEWS ? name : "search";
  const place = new URLSearchParams(query ?? "");
  const wanted = place.get("collection");
  if (wanted) chooser.value = wanted;
  for (const link of document.querySelectorAll("nav[aria-label=Views] a")) {
    if (link.getAttribute("href") === `#${shown}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[/** @type {keyof typeof TITLES} */ (shown)]} · semlex`;
  say("");
  if (chooser.selectedIndex < 0) {
    view = null;
    fill(main, h("p", { class: "error", role: "alert" }, "No collection ", own(wanted ?? ""), " exists here, or this token may not see it."));
    return;
  }
  view = VIEWS[shown](app, place);
  fill(main, view);
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const types = target.matches("input:not([type=range]), select, textarea");
  if (!types && !event.ctrlKey && !event.metaKey && !event.altKey) view?.onKey?.(event);
}

chooser.addEventListener("change", () => {
  const [name, query] = location.hash.slice(1).split(/\?(.*)/s);
  const place = new URLSearchParams(name === "search" ? (query ?? "") : "");
  place.set("collection", chooser.value);
  place.delete("filter");
  location.hash = `#${name || "search"}?${place}`;
});
window.addEventListener("hashchange", () => about && route());
document.addEventListener("keydown", onKey);
start();
