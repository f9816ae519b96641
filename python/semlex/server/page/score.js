/**
 * A score as a bar, and the arithmetic behind it with this hit's numbers.
 */

import { FULL_Z } from "./fusion.js";
import { counted, figure, fill, h, own, s, unseen } from "./dom.js";

/**
 * @typedef {object} Scale What all bars of a list share: from the lowest end to the highest, with zero between.
 * @property {number} low At most 0.
 * @property {number} high
 */

/** @param {{parts: import("./fusion.js").Parts}[]} rows @returns {Scale} */
export function scaleOf(rows) {
  return {
    low: rows.reduce((least, { parts }) => Math.min(least, parts.meaning), 0),
    high: rows.reduce((most, { parts }) => Math.max(most, parts.words + Math.max(parts.meaning, 0)), 0),
  };
}

/** Both parts from zero, a negative one to the left, and a mark at their sum. */
function bars() {
  const [words, meaning] = ["words", "meaning"].map((kind) => s("rect", { class: `bar ${kind}`, height: 10 }));
  const [zero, sum] = ["zero", "sum"].map((kind) => s("path", { class: kind, "vector-effect": "non-scaling-stroke" }));
  const box = { class: "bars", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" };

  /** @param {import("./fusion.js").Parts} parts @param {Scale} scale */
  function update(parts, { low, high }) {
    const at = (/** @type {number} */ value) => (high > low ? (100 * (value - low)) / (high - low) : 0);
    const draw = (/** @type {Element} */ bar, /** @type {number} */ from, /** @type {number} */ to) => {
      bar.setAttribute("x", String(at(Math.min(from, to))));
      bar.setAttribute("width", String(Math.abs(at(to) - at(from))));
    };
    const from = parts.meaning > 0 ? parts.words : 0;
    draw(words, 0, parts.words);
    draw(meaning, from, from + parts.meaning);
    zero.setAttribute("d", `M${at(0)} 0V10`);
    sum.setAttribute("d", `M${at(parts.score)} 0V10`);
  }

  return { element: s("svg", box, words, meaning, zero, sum), update };
}

/**
 * The score of a hit, to be updated when the weight changes.
 * @param {any} hit
 * @returns {{element: HTMLElement, update: (parts: import("./fusion.js").Parts, weight: number,
 *     measured: import("./fusion.js").Measured, scale: Scale) => void}}
 */
export function scoreOf(hit) {
  const drawn = bars();
  const line = h("span", { class: "sum" });
  const sums = h("dl", { class: "arithmetic" });
  let explain = () => {};
  const element = /** @type {HTMLDetailsElement} */ (
    h("details", { class: "score", on: { toggle: () => element.open && explain() } }, h("summary", {}, drawn.element, line), sums, termsOf(hit)));
  return {
    element,
    update(parts, weight, measured, scale) {
      const sum = `${figure(parts.score, 3)} = ${figure(parts.words, 3)} words ${sign(parts.meaning, 3)} meaning`;
      drawn.update(parts, scale);
      line.textContent = sum;
      explain = () => fill(sums, ...arithmetic(hit, parts, weight, measured));
      if (element.open) explain();
    },
  };
}

/** @param {number} value @param {number} [digits] */
function sign(value, digits) {
  return value < 0 ? `− ${figure(-value, digits)}` : `+ ${figure(value, digits)}`;
}

/** @param {any} hit @param {import("./fusion.js").Parts} parts @param {number} weight @param {any} measured */
function arithmetic(hit, parts, weight, measured) {
  const found = hit.keyword_score > 0;
  const words = found
    ? `(1 − ${figure(weight, 2)}) × ${figure(hit.keyword_score)} ÷ ${figure(measured.greatest)} = ${figure(parts.words)}`
    : "0: the chunk has none of the query's words";
  let meaning = "0: the chunk has no vector";
  if (hit.vector_score !== null) {
    meaning = measured.deviation
      ? `${figure(weight, 2)} × (${figure(hit.vector_score)} − ${figure(measured.mean)}) ÷ ` +
        `${figure(measured.deviation)} ÷ ${FULL_Z} = ${figure(parts.meaning)}`
      : "0: all vectors are equally near to the question";
  }
  return [
    h("dt", { class: "words" }, "Words"),
    h("dd", {}, h("span", { class: "formula" }, "(1 − weight) × keyword score ÷ best keyword score"), h("br"), words),
    h("dt", { class: "meaning" }, "Meaning"),
    h("dd", {}, h("span", { class: "formula" }, "weight × (cosine − mean) ÷ deviation ÷ 6"), h("br"), meaning),
    h("dt", {}, "Fused score"),
    h("dd", {}, `${figure(parts.words)} ${sign(parts.meaning)} = ${figure(parts.score)}`),
    h("dt", {}, "Ranks"),
    h("dd", {}, places(hit)),
  ];
}

/** @param {any} hit */
function places(hit) {
  const words = hit.keyword_rank === null ? "not among the candidates by words" : `rank ${hit.keyword_rank} by words`;
  const meaning = hit.vector_rank === null ? "not among the candidates by meaning" : `rank ${hit.vector_rank} by meaning`;
  return `${words}, ${meaning}`;
}

/** The query's words, with what each adds to the keyword score. @param {any} hit */
function termsOf(hit) {
  if (!hit.terms?.length) return null;
  return h(
    "ul",
    { class: "terms", "aria-label": "The query's words" },
    hit.terms.map((/** @type {any} */ term) =>
      h(
        "li",
        { class: term.held ? "held" : "missing" },
        own(term.term),
        term.held ? ` adds ${figure(term.score, 3)}` : " is not in the chunk",
        h("span", { class: "aside" }, ` (in ${counted(term.chunks)} chunks)`),
      ),
    ),
  );
}

/** The score of the only search that answered. @param {any} hit */
export function loneScore(hit) {
  const [name, score] = hit.vector_score === null ? ["Words", hit.keyword_score] : ["Meaning", hit.vector_score];
  return h("p", { class: "score" }, unseen("Score: "), `${name} ${figure(score)}`);
}
