/**
 * A score as a bar, and the arithmetic behind it with this hit's numbers.
 */

import { FULL_Z } from "./fusion.js";
import { counted, figure, fill, h, own, unseen } from "./dom.js";

/** @param {string} kind `words` or `meaning`. @param {number} share Of the width, 0 to 1. */
function bar(kind, share) {
  const made = h("span", { class: `bar ${kind}` });
  made.style.width = `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(2)}%`;
  return made;
}

/**
 * The score of a hit, to be updated when the weight changes.
 * @param {any} hit
 * @returns {{element: HTMLElement, update: (parts: import("./fusion.js").Parts, weight: number,
 *     measured: import("./fusion.js").Measured, best: number) => void}}
 */
export function scoreOf(hit) {
  const line = h("span", { class: "sum" });
  const bars = h("span", { class: "bars", "aria-hidden": "true" });
  const sums = h("dl", { class: "arithmetic" });
  const element = h("details", { class: "score" }, h("summary", {}, bars, line), sums, termsOf(hit));
  return {
    element,
    update(parts, weight, measured, best) {
      const scale = best > 0 ? best : 1;
      fill(bars, bar("words", parts.words / scale), bar("meaning", parts.meaning / scale));
      fill(line, `${figure(parts.score)} = ${figure(parts.words)} words ${sign(parts.meaning)} meaning`);
      fill(sums, ...arithmetic(hit, parts, weight, measured));
    },
  };
}

/** @param {number} value */
function sign(value) {
  return value < 0 ? `− ${figure(-value)}` : `+ ${figure(value)}`;
}

/** @param {any} hit @param {import("./fusion.js").Parts} parts @param {number} weight @param {any} measured */
function arithmetic(hit, parts, weight, measured) {
  const found = hit.keyword_score > 0;
  const words = found
    ? `(1 − ${figure(weight, 2)}) × ${figure(hit.keyword_score)} ÷ ${figure(measured.greatest)} = ${figure(parts.words)}`
    : "0: none of the question's words is in it";
  let meaning = "0: the chunk has no vector";
  if (hit.vector_score !== null) {
    meaning = measured.deviation
      ? `${figure(weight, 2)} × (${figure(hit.vector_score)} − ${figure(measured.mean)}) ÷ ` +
        `${figure(measured.deviation)} ÷ ${FULL_Z} = ${figure(parts.meaning)}`
      : "0: all vectors are equally near";
  }
  return [
    h("dt", { class: "words" }, "Words"),
    h("dd", {}, h("span", { class: "formula" }, "(1 − weight) × keyword score ÷ best keyword score"), h("br"), words),
    h("dt", { class: "meaning" }, "Meaning"),
    h("dd", {}, h("span", { class: "formula" }, "weight × (cosine − mean) ÷ deviation ÷ 6"), h("br"), meaning),
    h("dt", {}, "Fused score"),
    h("dd", {}, `${figure(parts.words)} ${sign(parts.meaning)} = ${figure(parts.score)}`),
    h("dt", {}, "Places"),
    h("dd", {}, places(hit)),
  ];
}

/** @param {any} hit */
function places(hit) {
  const words = hit.keyword_rank === null ? "not among the candidates of the words" : `${hit.keyword_rank}. by words`;
  const meaning = hit.vector_rank === null ? "not among those of the meaning" : `${hit.vector_rank}. by meaning`;
  return `${words}, ${meaning}`;
}

/** The question's words, with what each adds to the keyword score. @param {any} hit */
function termsOf(hit) {
  if (!hit.terms?.length) return null;
  return h(
    "ul",
    { class: "terms", "aria-label": "The question's words" },
    hit.terms.map((/** @type {any} */ term) =>
      h(
        "li",
        { class: term.held ? "held" : "missing" },
        own(term.term),
        term.held ? ` adds ${figure(term.score, 3)}` : " is not in it",
        h("span", { class: "aside" }, ` in ${counted(term.chunks)} chunks`),
      ),
    ),
  );
}

/** The score of the only leg that answered. @param {any} hit */
export function loneScore(hit) {
  const [name, score] = hit.vector_score === null ? ["Words", hit.keyword_score] : ["Meaning", hit.vector_score];
  return h("p", { class: "score" }, unseen("Score: "), `${name} ${figure(score)}`);
}
