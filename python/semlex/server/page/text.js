/**
 * Makes elements of a document's text. Of Markdown, headings, code, lists, quotes, tables and emphasis are drawn; links
 * and images become their text, without an address. Everything else, such as tags, is shown as it is.
 */

import { fill, h, visible } from "./dom.js";

const MARKDOWN = /\.(md|markdown|mdx|html?|xhtml|docx|pptx|odt|epub)$/i;
// A line that also closes its backticks is code within a text.
const FENCE = /^\s*(`{3,}(?!.*`)|~~~)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)([-*+]|\d+[.)])\s+/;
const TABLE = /^\s*\|.*\|\s*$/;
// Bounded, so that hostile texts cost no time.
const INLINE = /(`{1,3})(.{1,500}?)\1|\*\*(?!\s)(.{1,500}?)(?<!\s)\*\*|(?<![\w*])\*(?!\s)([^*]{1,500})(?<!\s)\*(?!\w)|!?\[([^\]]{0,500})\]\([^)\s]{0,500}\)/gs;

/** @param {string} name Of a document. */
export function isMarkdown(name) {
  return MARKDOWN.test(name);
}

/** Whether code is open behind a text. @param {string} text @param {boolean} open Whether it was before. */
export function codeBehind(text, open) {
  return text.split("\n").filter((line) => FENCE.test(line)).length % 2 === 1 ? !open : open;
}

/**
 * @param {string} text
 * @param {boolean} inCode Whether it begins within code.
 * @returns {HTMLElement[]}
 */
export function drawn(text, inCode) {
  const blocks = /** @type {HTMLElement[]} */ ([]);
  /** @type {string[]} Lines of the block that is being read. */
  let lines = [];
  /** @type {(lines: string[]) => HTMLElement} */
  let make = paragraph;

  /** @param {(lines: string[]) => HTMLElement} next What the next lines are. */
  function end(next) {
    if (lines.some((line) => line.trim())) blocks.push(make(lines));
    lines = [];
    make = next;
  }

  if (inCode) make = code;
  for (const line of text.split("\n")) {
    const heading = HEADING.exec(line);
    if (FENCE.test(line)) {
      end(make === code ? paragraph : code);
    } else if (make === code) {
      lines.push(line);
    } else if (heading) {
      end(paragraph);
      blocks.push(h(`h${Math.min(heading[1].length + 2, 6)}`, { dir: "auto" }, inline(heading[2])));
    } else {
      const kind = TABLE.test(line) ? table : ITEM.test(line) ? item : /^\s*>/.test(line) ? quote : null;
      if (!line.trim()) end(paragraph);
      else if (kind === item || (kind !== null && kind !== make) || (kind === null && make === table)) end(kind ?? paragraph);
      lines.push(line);
    }
  }
  end(paragraph);
  return blocks;
}

/** @param {string[]} lines */
function paragraph(lines) {
  return h("p", { dir: "auto" }, inline(lines.join("\n")));
}

/** @param {string[]} lines */
function code(lines) {
  return h("pre", { dir: "auto" }, visible(lines.join("\n")));
}

/** @param {string[]} lines */
function quote(lines) {
  return h("blockquote", { dir: "auto" }, inline(lines.map((line) => line.replace(/^\s*>\s?/, "")).join("\n")));
}

/** @param {string[]} lines The first begins with a mark. */
function item(lines) {
  const [, indent, mark] = /** @type {RegExpExecArray} */ (ITEM.exec(lines[0]));
  const text = lines.join("\n").replace(ITEM, "");
  return h("p", { class: `item deep-${Math.min(Math.floor(indent.length / 2), 3)}`, dir: "auto" },
    mark.length > 1 ? `${mark} ` : "• ", inline(text));
}

/** @param {string[]} lines */
function table(lines) {
  const rows = lines.map((line) => line.trim().slice(1, -1).split(/(?<!\\)\|/));
  // Further down, a row of dashes is one of empty cells.
  const rule = rows.slice(0, 2).findIndex((row) => row.every((cell) => /^\s*:?-+:?\s*$/.test(cell)));
  const hasHead = rule === 1;
  const body = rows.filter((_, index) => index !== rule);
  return h("table", {}, body.map((row, index) => h("tr", {}, row.map((cell) =>
    h(hasHead && index === 0 && cell.trim() ? "th" : "td", { dir: "auto" }, inline(cell.trim().replaceAll("\\|", "|")))))));
}

/** @param {string} text @returns {(Node | string)[]} */
function inline(text) {
  /** @type {(Node | string)[]} */
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    parts.push(visible(text.slice(end, found.index)));
    end = found.index + found[0].length;
    if (found[2] !== undefined) parts.push(h("code", {}, visible(found[2])));
    else if (found[3] !== undefined) parts.push(fill(h("strong"), inline(found[3])));
    else if (found[4] !== undefined) parts.push(h("em", {}, visible(found[4])));
    else parts.push(visible(found[5]));
  }
  return [...parts, visible(text.slice(end))];
}
