/**
 * Explains why a document is missing or has its rank, and what helps.
 */

import { post } from "./api.js";
import { counted, figure, fill, h, latest, own, table, visible } from "./dom.js";

/**
 * @param {{request: () => Record<string, any> | null}} search Gives what the search was asked.
 */
export function whyBox(search) {
  const input = /** @type {HTMLInputElement} */ (
    h("input", { id: "missing", name: "missing", autocomplete: "off", placeholder: "guide/keys.md, or an id", dir: "auto" })
  );
  const answer = h("div", { class: "answer", role: "status" });
  const form = h(
    "form",
    { class: "line", on: { submit: onSubmit } },
    h("label", { for: "missing" }, "Document, or id of a chunk"),
    input,
    h("button", {}, "Ask why"),
  );
  const element = h("section", { class: "why", "aria-label": "Why is it missing?" }, h("h3", {}, "Why is it missing?"), form, answer);

  /** @param {Event} event */
  async function onSubmit(event) {
    event.preventDefault();
    const document = input.value.trim();
    const request = search.request();
    if (!document || request === null) {
      fill(answer, h("p", { class: "error" }, request === null ? "Ask a question first." : "Name a document."));
      return;
    }
    await explain(request, document, answer);
    element.scrollIntoView({ block: "nearest" });
  }

  return element;
}

/** Shows why a document is missing or has its rank. @param {any} request @param {string} document @param {HTMLElement} place */
export async function explain(request, document, place) {
  const isWanted = latest(place);
  fill(place, h("p", {}, "Looking …"));
  const answer = await post("v1/why", { ...request, document }).then(told, (error) => h("p", { class: "error" }, error.text ?? String(error)));
  if (isWanted()) fill(place, answer);
}

/** @param {any} found */
function told(found) {
  return [
    h("p", {}, own(found.name ?? found.document, { class: "path" }), found.found ? ` is hit ${found.rank}.` : " is not among the hits."),
    h("ol", { class: "reasons" }, found.reasons.map((/** @type {any} */ reason) => h("li", {},
      h("p", {}, own(reason.text), " ", h("code", { class: "code" }, reason.code)),
      reason.remedy ? h("p", { class: "remedy" }, "What helps: ", h("code", {}, reason.remedy)) : null,
    ))),
    found.legs.length ? table("Its rank in each search", ["Search", "Rank", "Score", "Score of the last candidate", "Score of the last hit"],
      found.legs.map((/** @type {any} */ leg) => [
        leg.leg === "keyword" ? "Words" : "Meaning",
        leg.rank === null ? "none" : counted(leg.rank),
        figure(leg.score), figure(leg.last_candidate_score), figure(leg.last_hit_score),
      ])) : null,
    found.terms.length ? table("The query's words", ["Word", "Weight", "Chunks with the word", "Adds to the score"],
      found.terms.map((/** @type {any} */ term) => [
        own(term.term), figure(term.weight, 2), counted(term.chunks), term.held ? figure(term.score, 3) : "is not in the chunk",
      ])) : null,
    found.notes.map((/** @type {string} */ note) => h("p", { class: "aside" }, visible(note))),
  ];
}
