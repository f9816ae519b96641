/**
 * Score fusion, as the library computes it: the same steps on the same float64, so the same order for every weight.
 * It repeats rust/core/src/fusion.rs; change both together; a test compares the scores.
 */

/**
 * @typedef {object} Measured What scores are measured against.
 * @property {number} mean Of the cosines of a sample.
 * @property {number} deviation Of the same.
 * @property {number} greatest The best keyword score.
 */

/**
 * @typedef {object} Parts
 * @property {number} words What the words add.
 * @property {number} meaning What the vector adds.
 * @property {number} score Their sum.
 */

/** A cosine so many deviations above the mean counts as much as the best keyword score. */
export const FULL_Z = 6;

/**
 * @param {any[]} hits With both scores.
 * @param {any} explanation Of the search.
 * @returns {Measured | null} Null if only one search answered.
 */
export function measuredBy(hits, explanation) {
  if (explanation?.fusion !== "score") return null;
  return {
    mean: explanation.similarity_mean,
    deviation: explanation.similarity_deviation,
    greatest: hits.reduce((best, hit) => Math.max(best, hit.keyword_score ?? 0), 0),
  };
}

/**
 * @param {any} hit
 * @param {Measured} measured
 * @param {number} weight Of the vector, 0 to 1.
 * @returns {Parts}
 */
export function partsOf(hit, measured, weight) {
  const share = hit.keyword_score > 0 ? hit.keyword_score / measured.greatest : 0;
  const words = (1 - weight) * share;
  let meaning = 0;
  if (hit.vector_score !== null && measured.deviation !== 0) {
    const z = (hit.vector_score - measured.mean) / measured.deviation;
    meaning = weight * (Math.min(Math.max(z, -Number.MAX_VALUE), Number.MAX_VALUE) / FULL_Z) + 0;
  }
  return { words, meaning, score: words + meaning };
}

/**
 * The hits in the order of a weight; the smaller key breaks ties.
 * @param {any[]} hits
 * @param {Measured} measured
 * @param {number} weight Of the vector, 0 to 1.
 * @returns {{hit: any, parts: Parts}[]}
 */
export function ordered(hits, measured, weight) {
  const rows = hits.map((hit) => ({ hit, parts: partsOf(hit, measured, weight) }));
  return rows.sort((left, right) => right.parts.score - left.parts.score || left.hit.order - right.hit.order);
}
