/**
 * Makes elements of names, attributes and texts. Texts of documents become text nodes, never markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 */

/**
 * An element of HTML.
 * @param {string} name
 * @param {Record<string, any>} [attributes] `on` holds listeners by the name of their event; null, undefined and false
 *     leave an attribute out.
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(name, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (filled(document.createElement(name), attributes, children));
}

/**
 * An element of SVG.
 * @param {string} name
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function s(name, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (filled(document.createElementNS(SVG, name), attributes, children));
}

/**
 * @param {Element} made
 * @param {Record<string, any>} attributes
 * @param {(Child | Child[])[]} children
 * @returns {Element}
 */
function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(key, value === true ? "" : String(value));
    }
  }
  fill(made, ...children);
  return made;
}

/**
 * Replaces what an element holds.
 * @template {Element} T
 * @param {T} parent
 * @param {...(Child | Child[])} children
 * @returns {T}
 */
export function fill(parent, ...children) {
  const kept = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  parent.replaceChildren(...kept.map((child) => (child instanceof Node ? child : String(child))));
  return parent;
}

// Control characters except tab and newline, separators of lines, lone surrogates, and what turns the direction of writing.
const CONTROLS = /[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu;

/**
 * A text whose control characters are visible, so that it cannot pose as another one.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(CONTROLS, (one) => `[U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

/**
 * A name or another short text of a document: its direction ends with it, its control characters are visible.
 * @param {string} text
 * @param {Record<string, any>} [attributes]
 */
export function own(text, attributes = {}) {
  return h("bdi", attributes, visible(text));
}

/** @param {string} text For those who listen. */
export function unseen(text) {
  return h("span", { class: "unseen" }, text);
}

/**
 * A table; a row is a list of cells.
 * @param {string} caption
 * @param {string[]} heads
 * @param {Child[][]} rows
 * @param {boolean} [stacks] Whether a narrow screen shows each row as a block, under its first cell.
 */
export function table(caption, heads, rows, stacks = false) {
  return h(
    "div",
    { class: stacks ? "scrolled stacks" : "scrolled", role: "region", "aria-label": caption, tabindex: "0" },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, index) => h("td", { "data-head": heads[index] }, cell))))),
    ),
  );
}

/** @param {number | null | undefined} value @param {number} [digits] */
export function figure(value, digits = 4) {
  return value === null || value === undefined ? "none" : value.toFixed(digits).replace("-", "−");
}

/** @param {number | null | undefined} value */
export function counted(value) {
  return value === null || value === undefined ? "unknown" : value.toLocaleString("en");
}

/** @param {string | null} time Of ISO 8601. */
export function moment(time) {
  return time === null ? "" : h("time", { datetime: time }, new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }));
}

/** @type {WeakMap<HTMLElement, object>} */
const calls = new WeakMap();

/**
 * Begins a call whose answer is shown in a place.
 * @param {HTMLElement} place
 * @returns {() => boolean} Whether the answer is still wanted: no later call has begun, and the place is on the page.
 */
export function latest(place) {
  const mine = {};
  calls.set(place, mine);
  return () => calls.get(place) === mine && place.isConnected;
}

const SAID_MS = 4000;
let saying = 0;

/** @param {string} text Said to those who listen, and shown for a while. */
export function say(text) {
  const place = document.getElementById("status");
  clearTimeout(saying);
  if (place) place.textContent = visible(text);
  if (text) saying = setTimeout(say, SAID_MS, "");
}
