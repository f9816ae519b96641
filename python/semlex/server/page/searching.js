/**
 * The search view: a question, its hits, and a slider that weighs words against meaning.
 */

import { get, post } from "./api.js";
import { documentOf, documentPlace } from "./documents.js";
import { counted, fill, h, latest, own, say, visible } from "./dom.js";
import { filterPanel } from "./filters.js";
import { measuredBy, ordered } from "./fusion.js";
import { hitList, placeOf, sayJudged } from "./hits.js";
import { judging } from "./judging.js";
import { legsPicture } from "./legs.js";
import { explain, whyBox } from "./why.js";

const DEPTH = 50;
const SHOWN = 10;
const PICTURED = 8;
const EXAMPLES = 3;
const LONGEST_EXAMPLE = 60;
const LISTED = 200;
// From this width on the picture is beside the hits.
const WIDE = matchMedia("(min-width: 75rem)");
/** @type {Record<string, string>} */
const SUPPORT = { likely: "Probably in here.", unsure: "Perhaps in here.", unlikely: "Probably not in here." };

/** @param {any} app @param {URLSearchParams} place */
export function searchView(app, place) {
  /** @type {any[]} */
  let hits = [];
  /** @type {any} */
  let found = null;
  /** @type {import("./fusion.js").Measured | null} */
  let measured = null;
  let shown = SHOWN;
  /** @type {any} What the hits that are shown were asked with. */
  let asked = null;

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
  const weighing = h("div", { class: "weighing" },
    h("label", { for: "weight" }, "Weight of words and meaning"),
    h("span", { class: "words", "aria-hidden": "true" }, "words"), slider,
    h("span", { class: "meaning", "aria-hidden": "true" }, "meaning"), weightText);
  const verdict = h("strong");
  const remark = h("span", { class: "aside" });
  const more = h("button", { type: "button", class: "more", hidden: true, on: { click: showMore } }, "More hits");

  const list = hitList({
    open, judge,
    why: (hit, place) => explain(sameSearch(), documentOf(hit), place),
    highlight: (id, on) => picture.highlight(id, on),
  });
  const picture = legsPicture(list.choose);
  const placing = /** @type {HTMLDetailsElement} */ (
    h("details", { class: "placing", open: WIDE.matches, hidden: true },
      h("summary", {}, "Why this order?"), weighing, picture.element));
  WIDE.onchange = () => (placing.open = WIDE.matches);
  const filters = filterPanel(app, search);
  const judged = judging(app, list.showJudgements);
  const why = whyBox({ request: () => asked && sameSearch() });
  const beside = h("div", { class: "beside" }, placing, h("div", {}, list.element, more));
  const results = h("div", { class: "results", hidden: true },
    h("p", { class: "verdict" }, verdict, " ", remark),
    beside, why, judged.element);
  const start = h("div", { class: "start" });

  const onSubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    search();
  };
  const form = h("form", { class: "line ask", role: "search", "aria-label": "A question", on: { submit: onSubmit } },
    h("label", { for: "question" }, "Question"), question, h("button", {}, "Search"));
  const element = h("section", { "aria-label": "Search" }, h("h2", { class: "unseen" }, "Search"), form, problem, filters.element, start, results);
  if (place.get("filter")) filters.set(place.get("filter") ?? "");
  if (question.value) search();
  else {
    queueMicrotask(() => question.focus());
    invite(app, start);
  }

  /** What the search is that shows the same list. */
  function sameSearch() {
    const weight = Number(slider.value);
    const weights = measured === null ? undefined : { vector: weight, keyword: 1 - weight };
    return { ...asked, query: undefined, question: asked.query, top_k: Math.min(shown, DEPTH), candidates: DEPTH, rerank: false, weights };
  }

  async function search() {
    const request = { collection: app.collection(), query: question.value.trim(), filters: filters.text() ?? undefined };
    if (!request.query) return;
    const isWanted = latest(element);
    fill(problem);
    say("Searching …");
    try {
      const answer = await post("v1/candidates", { ...request, depth: DEPTH });
      if (!isWanted()) return;
      const weight = found === null ? (place.get("w") ?? answer.explanation?.weights.vector) : slider.value;
      if (weight !== undefined && weight !== null) slider.value = String(weight);
      asked = request;
      take(answer);
      await judged.open(asked.collection, asked.query);
    } catch (error) {
      if (isWanted()) refused(/** @type {any} */ (error));
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
    start.hidden = true;
    placing.hidden = measured === null;
    beside.classList.toggle("weighed", measured !== null);
    filters.refuse(null);
    list.start(hits);
    order();
    note();
    say(hits.length ? `${hits.length} candidates` : "Nothing was found.");
    const lone = measured === null && hits.length ? ["Only one of the two searches answered, so there is nothing to weigh."] : [];
    const none = hits.length ? [] : ["Nothing was found. If you miss a document, ask below why it is not among the hits."];
    fill(verdict, SUPPORT[answer.support] ?? "");
    fill(remark, visible([...none, ...lone, ...answer.warnings].join(" ")));
  }

  /** Reorders the hits by the slider, without a request. */
  function order() {
    const weight = Number(slider.value);
    const all = measured === null ? hits.map((hit) => ({ hit, parts: null })) : ordered(hits, measured, weight);
    const usual = found.explanation?.weights.vector;
    const beside = usual === undefined ? "" : `; default weight of meaning for this model: ${usual.toFixed(2)}`;
    weightText.textContent = `words ${(1 - weight).toFixed(2)}, meaning ${weight.toFixed(2)}${beside}`;
    slider.setAttribute("aria-valuetext", `meaning counts ${weight.toFixed(2)}, words ${(1 - weight).toFixed(2)}`);
    if (measured !== null) picture.update(all.map(({ hit }) => hit), PICTURED);
    list.update(all.slice(0, shown), weight, measured);
    more.hidden = shown >= hits.length;
  }

  /** Notes in the address what is shown. */
  function note() {
    app.note("search", { q: asked.query, w: measured === null ? null : slider.value, filter: asked.filters ?? null });
  }

  function showMore() {
    shown += SHOWN;
    order();
  }

  /** @param {any} hit */
  function open(hit) {
    location.hash = documentPlace(app, documentOf(hit), hit.id);
  }

  /** @param {any} hit @param {(before: number | null) => number | null} change */
  async function judge(hit, change) {
    try {
      sayJudged(hit, await judged.note(hit.id, change));
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

/** Says what can be asked, before something is. @param {any} app @param {HTMLElement} place */
async function invite(app, place) {
  const collection = app.collection();
  const { documents, chunks, description } = app.collections.find((/** @type {any} */ one) => one.name === collection) ?? {};
  fill(place, h("p", {}, "Ask in your own words, or look for exact ones.",
    chunks !== undefined && ` This collection has ${counted(documents)} documents in ${counted(chunks)} chunks.`),
    description && h("p", {}, own(description)));
  const found = await get("v1/chunks", { collection, limit: LISTED, fields: "heading_path,source_document" }).catch(() => ({ chunks: [] }));
  const examples = headingsOf(found.chunks).slice(0, EXAMPLES);
  if (examples.length === 0) return;
  place.append(h("p", {}, "For example:"), h("ul", { class: "examples" }, examples.map((heading) =>
    h("li", {}, h("a", { href: `#search?${new URLSearchParams({ collection, q: heading })}` }, own(heading))))));
}

/** Headings that could be questions, of as many documents as there are. @param {any[]} chunks @returns {string[]} */
function headingsOf(chunks) {
  const firsts = new Map();
  for (const { source_document: document, heading_path: path } of chunks) {
    const heading = path.at(-1);
    if (heading && /\S\s+\S/.test(heading) && heading.length <= LONGEST_EXAMPLE && !firsts.has(document)) firsts.set(document, heading);
  }
  return [...new Set(firsts.values())];
}
