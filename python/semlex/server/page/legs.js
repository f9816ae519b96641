/**
 * The rank of each chunk in both searches and after fusion: three columns with lines between them.
 */

import { fill, h, own, s, unseen } from "./dom.js";
import { behind } from "./hits.js";

const ROW = 34;

/**
 * @typedef {object} Row
 * @property {any} hit
 * @property {number} rank In this column.
 * @property {boolean} [far] Whether it is below a gap.
 */

/**
 * The picture.
 * @param {(id: string) => void} choose Called with the id of a chunk that was clicked.
 */
export function legsPicture(choose) {
  const element = h("div", { class: "legs" });

  /**
   * @param {any[]} hits In their order by now.
   * @param {number} shown How many of them.
   */
  function update(hits, shown) {
    const top = hits.slice(0, shown);
    const fused = top.map((hit, index) => ({ hit, rank: index + 1 }));
    const words = column(hits, top, "keyword_rank", shown);
    const meaning = column(hits, top, "vector_rank", shown);
    const height = ROW * Math.max(fused.length, words.length, meaning.length);
    fill(
      element,
      leg("Words", "words", words, fused),
      lines("words", words, fused, height, false),
      leg("Fused", "fused", fused, fused),
      lines("meaning", meaning, fused, height, true),
      leg("Meaning", "meaning", meaning, fused),
    );
  }

  /** @param {string} title @param {string} kind @param {Row[]} rows @param {Row[]} fused */
  function leg(title, kind, rows, fused) {
    const placed = new Map(fused.map((row) => [row.hit.id, row.rank]));
    const items = rows.map(({ hit, rank, far }) => {
      const place = placed.get(hit.id);
      const told = kind === "fused" ? "" : place ? `, rank ${place} after fusion` : ", lower after fusion";
      return h(
        "li",
        {
          class: `row${place ? "" : " below"}${far ? " far" : ""}`,
          "data-id": hit.id,
          on: {
            click: () => choose(hit.id),
            mouseenter: () => highlight(hit.id, true),
            mouseleave: () => highlight(hit.id, false),
          },
        },
        h("span", { class: "rank" }, rank),
        own(nameOf(hit), { class: "label" }),
        own(behind(hit)),
        told && unseen(told),
      );
    });
    const none = rows.length ? null : h("p", { class: "aside" }, "no chunks");
    return h("section", { class: `leg ${kind}` }, h("h3", {}, title), h("ol", { class: "rows" }, items), none);
  }

  /** @param {string} id @param {boolean} on */
  function highlight(id, on) {
    for (const one of element.querySelectorAll("[data-id]")) {
      if (/** @type {any} */ (one).dataset.id === id) one.classList.toggle("lit", on);
    }
  }

  return { element, update, highlight };
}

/** The last part of a path, or the id. @param {any} hit */
function nameOf(hit) {
  const path = hit.source_document || hit.id;
  return path.slice(path.lastIndexOf("/") + 1) || path;
}

/**
 * The best hits of a search, and below them the hits of the fused list that have a lower rank there.
 * @param {any[]} hits @param {any[]} top @param {string} name Of the rank. @param {number} shown
 * @returns {Row[]}
 */
function column(hits, top, name, shown) {
  const kept = new Set(top);
  return hits
    .filter((hit) => hit[name] !== null && (hit[name] <= shown || kept.has(hit)))
    .map((hit) => ({ hit, rank: hit[name], far: hit[name] > shown }))
    .sort((left, right) => left.rank - right.rank);
}

/**
 * @param {string} kind @param {Row[]} from @param {Row[]} fused @param {number} height
 * @param {boolean} mirrored Whether the search is the right column.
 */
function lines(kind, from, fused, height, mirrored) {
  const places = new Map(fused.map((row, index) => [row.hit.id, index]));
  const drawn = from.flatMap((row, index) => {
    const place = places.get(row.hit.id);
    if (place === undefined) return [];
    const [start, end] = mirrored ? [place, index] : [index, place];
    const [y1, y2] = [start * ROW + ROW / 2, end * ROW + ROW / 2];
    const path = `M0 ${y1} C50 ${y1} 50 ${y2} 100 ${y2}`;
    return [s("path", { d: path, "data-id": row.hit.id, class: row.far ? "far" : "", "vector-effect": "non-scaling-stroke" })];
  });
  const view = { viewBox: `0 0 100 ${height}`, height, preserveAspectRatio: "none", "aria-hidden": "true" };
  return s("svg", { class: `lines ${kind}`, ...view }, drawn);
}
