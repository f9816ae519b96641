/**
 * A question, the order of its hits, and the slider that weighs words against meaning.
 */

import { post } from "./api.js";
import { documentOf, documentPlace } from "./documents.js";
import { fill, h, say } from "./dom.js";
import { filterPanel } from "./filters.js";
import { measuredBy, ordered } from "./fusion.js";
import { hitList, placeOf, sayJudged } from "./hits.js";
import { judging } from "./judging.js";
import { legsPicture } from "./legs.js";
import { whyBox } from "./why.js";

const DEPTH = 50;
const SHOWN = 10;
const PICTURED = 8;

/** @param {any} app @param {URLSearchParams} place */
export function searchView(app, place) {
  /** @type {any[]} */
  let hits = [];
  /** @type {any} */
  let found = null;
  /** @type {import("./fusion.js").Measured | null} */
  let measured = null;
  let shown = SHOWN;
  let asked = "";
  let count = 0;

  const question = /** @type {HTMLInputElement} */ (
    h("input", {
      id: "question", name: "q", type: "search", autocomplete: "off", dir: "auto", value: place.get("q") ?? "",
      "aria-describedby": "question-error",
    })
  );
  const problem = h("p", { id: "question-error", class: "error", role: "alert" });
  const slider = /** @type {HTMLInputElement} */ (
    h("input", { id: "weight", type: "range", min: "0", max: "1", step: "0.01", value: "0.5", on: { input: order, change: note } })
  );
  const weightText = h("output", { for: "weight" });
  const weighing = h("div", { class: "weighing", hidden: true },
    h("label", { for: "weight" }, "From words to meaning"),
    h("span", { class: "words", "aria-hidden": "true" }, "words"), slider,
    h("span", { class: "meaning", "aria-hidden": "true" }, "meaning"), weightText);
  const remark = h("p", { class: "aside" });
  const more = h("button", { type: "button", hidden: true, on: { click: showMore } }, "More hits");

  const list = hitList({ open, why: (hit) => why.ask(documentOf(hit)), judge, highlight: (id, on) => picture.highlight(id, on) });
  const picture = legsPicture(list.choose);
  const filters = filterPanel(app, () => asked && search());
  const judged = judging(app);
  const why = whyBox({ request: () => (asked ? sameSearch() : null) });
  const results = h("div", { class: "results", hidden: true },
    weighing, remark, picture.element, list.element, more, why.element, judged.element);

  const onSubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    search();
  };
  const form = h("form", { class: "line ask", role: "search", "aria-label": "A question", on: { submit: onSubmit } },
    h("label", { for: "question" }, "Question"), question, h("button", {}, "Search"));
  const element = h("section", { "aria-label": "Search" }, form, problem, filters.element, results);
  if (place.get("filter")) filters.set(place.get("filter") ?? "");
  if (question.value) search();
  else queueMicrotask(() => question.focus());

  function request() {
    return { collection: app.collection(), query: asked, filters: filters.text() ?? undefined };
  }

  /** What the search is that shows the same list. */
  function sameSearch() {
    const weight = Number(slider.value);
    const weights = measured === null ? undefined : { vector: weight, keyword: 1 - weight };
    return { ...request(), query: undefined, question: asked, top_k: Math.min(shown, DEPTH), candidates: DEPTH, rerank: false, weights };
  }

  async function search() {
    asked = question.value.trim();
    if (!asked) return;
    const mine = ++count;
    fill(problem);
    say("Searching …");
    try {
      const answer = await post("/v1/candidates", { ...request(), depth: DEPTH });
      if (mine !== count) return; // a later question was faster
      const weight = found === null ? (place.get("w") ?? answer.explanation?.weights.vector) : slider.value;
      if (weight !== undefined && weight !== null) slider.value = String(weight);
      take(answer);
      list.showJudgements(await judged.open(asked));
    } catch (error) {
      if (mine === count) refused(/** @type {any} */ (error));
    }
  }

  /** @param {any} error */
  function refused(error) {
    say("");
    if (app.refused(error)) return;
    const message = error.text ?? String(error);
    if (error.isAbout?.("filters")) filters.refuse(message);
    else fill(problem, message);
  }

  /** @param {any} answer */
  function take(answer) {
    found = answer;
    const told = new Map((answer.explanation?.hits ?? []).map((/** @type {any} */ one) => [one.id, one]));
    measured = measuredBy(answer.hits, answer.explanation);
    hits = answer.hits.map((/** @type {any} */ hit) => ({
      ...hit,
      order: told.get(hit.id)?.order ?? 0,
      terms: told.get(hit.id)?.terms ?? [],
      measured: measured !== null,
    }));
    shown = SHOWN;
    results.hidden = false;
    weighing.hidden = measured === null;
    filters.refuse(null);
    list.start(hits);
    order();
    note();
    say(hits.length ? `${hits.length} candidates` : "Nothing was found.");
    const lone = measured === null && hits.length ? ["One leg answered alone, so there is nothing to weigh."] : [];
    const none = hits.length ? [] : ["Nothing was found. Should a document be there? Ask below why it is missing."];
    fill(remark, [...none, ...lone, ...answer.warnings].join(" "));
  }

  /** Reorders the hits by the slider, without a request. */
  function order() {
    const weight = Number(slider.value);
    const all = measured === null ? hits.map((hit) => ({ hit })) : ordered(hits, measured, weight);
    const usual = found.explanation?.weights.vector;
    const beside = usual === undefined ? "" : `; this model's own weight is ${usual.toFixed(2)}`;
    weightText.textContent = `words ${(1 - weight).toFixed(2)}, meaning ${weight.toFixed(2)}${beside}`;
    slider.setAttribute("aria-valuetext", `meaning counts ${weight.toFixed(2)}, words ${(1 - weight).toFixed(2)}`);
    picture.element.hidden = measured === null;
    if (measured !== null) picture.update(all.map(({ hit }) => hit), PICTURED);
    list.update(all.slice(0, shown), weight, measured);
    more.hidden = shown >= hits.length;
  }

  /** Notes in the address what is shown. */
  function note() {
    app.note("search", { q: asked, w: measured === null ? null : slider.value, filter: filters.text() });
  }

  function showMore() {
    shown += SHOWN;
    order();
  }

  /** @param {any} hit */
  function open(hit) {
    location.hash = documentPlace(app, documentOf(hit), hit.id);
  }

  /** @param {any} hit @param {number | null} value */
  async function judge(hit, value) {
    try {
      list.showJudgements(await judged.note(hit.id, value));
      sayJudged(hit, value);
    } catch (error) {
      say(`${placeOf(hit)} was not judged: ${/** @type {any} */ (error).text ?? error}`);
    }
  }

  return Object.assign(element, {
    /** @param {KeyboardEvent} event */
    onKey(event) {
      if (event.key === "j") list.step(1);
      else if (event.key === "k") list.step(-1);
      else if (event.key === "/") question.focus();
      else return;
      event.preventDefault();
    },
  });
}
