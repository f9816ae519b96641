/**
 * Marks the matched words of an excerpt. The server puts two stars on each side of a match; stars that the text itself
 * contains are not marks.
 */

import { h, visible } from "./dom.js";

const BETWEEN = /( … |\n|^… | …$)/;
const LONGEST = 4000;

/**
 * @param {string} excerpt Parts of the content, with marks.
 * @param {string} content The whole text.
 * @returns {(Node | string)[]}
 */
export function marked(excerpt, content) {
  // No empty lines beside what was left out at the ends.
  const parts = excerpt.slice(0, LONGEST).replace(/^…\s+/, "… ").replace(/\s+…$/, " …").split(BETWEEN);
  return parts.flatMap((part, index) => (index % 2 ? [part] : markedPart(part, content)));
}

/** @param {string} part @param {string} content @returns {(Node | string)[]} */
function markedPart(part, content) {
  const start = content.replaceAll("*", "").indexOf(part.replaceAll("*", ""));
  if (start < 0) return [visible(part)];
  // Runs of stars have even places, the characters between them odd ones; these are the same in part and content.
  const own = part.split(/([^*])/s);
  const there = content.split(/([^*])/s).slice(2 * start, 2 * start + own.length);
  /** @type {string[]} Every second one is marked. */
  const pieces = [""];
  for (let at = 0; at < own.length; at += 2) {
    const stars = own[at];
    const marks = Math.floor(Math.max(0, stars.length - there[at].length) / 2);
    const rest = stars.slice(2 * marks);
    const opens = pieces.length % 2 === 1;
    // The text's own stars stand before a word that is marked, and behind one.
    if (marks % 2 && !opens) pieces.push("");
    pieces[pieces.length - 1] += rest;
    if (marks % 2 && opens) pieces.push("");
    pieces[pieces.length - 1] += own[at + 1] ?? "";
  }
  return pieces.map(visible).map((piece, index) => (index % 2 ? h("mark", {}, piece) : piece));
}
