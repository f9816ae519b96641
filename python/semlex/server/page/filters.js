/**
 * The filter of a search: values of fields to click, and a filter as text.
 */

import { get, post } from "./api.js";
import { counted, fill, h, latest, own } from "./dom.js";

const MAX_FIELDS = 20;
const SHOWN_VALUES = 8;
const LISTS = ["list", "texts"];
const CHOSEN = ["text", "number", "boolean", ...LISTS];
const HASHES = ["@id", "@parent"];

/**
 * @param {{collection: () => string}} app
 * @param {() => void} changed Called when the filter changes.
 */
export function filterPanel(app, changed) {
  /** @type {Set<string>} */
  const conditions = new Set();
  const input = /** @type {HTMLInputElement} */ (
    h("input", {
      id: "filter",
      name: "filter",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: 'year >= 2020 and lang == "de"',
      "aria-describedby": "filter-error",
    })
  );
  const problem = h("p", { id: "filter-error", class: "error" });
  const chosen = h("ul", { class: "chosen-values", "aria-label": "Chosen values" });
  const fields = h("div", { class: "fields" });
  const form = h(
    "form",
    { class: "line", on: { submit: onSubmit } },
    h("label", { for: "filter" }, "Filter"),
    input,
    h("button", {}, "Apply"),
  );
  const element = /** @type {HTMLDetailsElement} */ (
    h("details", { class: "filters", on: { toggle: () => element.open && show() } },
      h("summary", {}, "Filter"), form, problem, chosen, fields)
  );

  /** @returns {string | null} The filter as text. */
  function text() {
    const parts = [...conditions, input.value.trim()].filter(Boolean);
    return parts.length < 2 ? (parts[0] ?? null) : parts.map((part) => `(${part})`).join(" and ");
  }

  /** @param {Event} event */
  function onSubmit(event) {
    event.preventDefault();
    apply();
  }

  function apply() {
    refuse(null);
    fill(
      chosen,
      [...conditions].map((one) =>
        h("li", {}, h("button", { type: "button", title: "Remove this condition", on: { click: () => toggle(one) } }, own(one), " ×")),
      ),
    );
    if (element.open) show();
    changed();
  }

  /** @param {string} condition */
  function toggle(condition) {
    if (!conditions.delete(condition)) conditions.add(condition);
    apply();
  }

  /** Shows why the filter is refused. @param {string | null} message */
  function refuse(message) {
    fill(problem, message);
    input.setAttribute("aria-invalid", String(message !== null));
    if (message !== null) element.open = true;
  }

  /** Shows the values of the chunks that pass the filter. */
  async function show() {
    const isWanted = latest(fields);
    try {
      const found = await get("v1/fields", { collection: app.collection() });
      const known = found.fields.filter(canBeChosen);
      const asked = known.slice(0, MAX_FIELDS);
      if (asked.length === 0) return void fill(fields, h("p", { class: "aside" }, "The chunks have no fields."));
      const names = asked.map((/** @type {any} */ field) => field.name);
      const counts = await post("v1/facets", { collection: app.collection(), fields: names, filters: text(), limit: SHOWN_VALUES });
      if (!isWanted()) return;
      const rest = known.length - asked.length + found.left_out;
      fill(
        fields,
        asked.map((/** @type {any} */ field) => fieldValues(field, counts.facets[field.name], counts.chunks)),
        rest > 0 ? h("p", { class: "aside" }, `${counted(rest)} more fields; semlex fields lists them.`) : null,
      );
    } catch (error) {
      if (!isWanted()) return;
      const found = /** @type {any} */ (error);
      if (found.isAbout?.("filters") || text() !== null) refuse(found.text ?? String(found));
      else fill(fields, h("p", { class: "error" }, found.text ?? String(found)));
    }
  }

  /** @param {any} field @param {any} facet @param {number} chunks */
  function fieldValues(field, facet, chunks) {
    // A value that all have chooses nothing.
    if (!facet?.values.length || (facet.values.length === 1 && facet.values[0].count === chunks)) return null;
    const items = facet.values.map(({ value, count }) => {
      const condition = conditionOf(field, value);
      const label = typeof value === "string" ? value : JSON.stringify(value);
      return h(
        "li",
        {},
        h(
          "button",
          { type: "button", "aria-pressed": String(conditions.has(condition)), on: { click: () => toggle(condition) } },
          own(label.length > 60 ? `${label.slice(0, 60)}…` : label),
          h("span", { class: "count" }, counted(count)),
        ),
      );
    });
    return h(
      "section",
      { class: "field" },
      h("h3", {}, own(field.name)),
      h("ul", {}, items),
      facet.left_out ? h("p", { class: "aside" }, `and ${counted(facet.left_out)} more`) : null,
    );
  }

  return {
    element,
    text,
    refuse,
    /** @param {string} given */
    set(given) {
      input.value = given;
      element.open = true;
    },
  };
}

/** Whether a field has values to click: times and keys are too many, hashes mean nothing to people. @param {any} field */
function canBeChosen(field) {
  return !HASHES.includes(field.name) && Object.keys(field.types).some((type) => CHOSEN.includes(type));
}

/** A condition as the filter language writes it; its texts are those of JSON. @param {any} field @param {any} value */
function conditionOf(field, value) {
  const written = JSON.stringify(value);
  const types = Object.keys(field.types);
  if (types.every((type) => LISTS.includes(type))) return `${field.name} contains ${written}`;
  if (types.some((type) => LISTS.includes(type))) return `(${field.name} == ${written} or ${field.name} contains ${written})`;
  return `${field.name} == ${written}`;
}
