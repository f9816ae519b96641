/**
 * Two views: the list of a collection's documents, and one document with its headings beside its text.
 */

import { get } from "./api.js";
import { counted, fill, h, moment, own, table, visible } from "./dom.js";
import { codeBehind, drawn, isMarkdown } from "./text.js";

const LISTED = 200;
// Chunks of a document that are on the page at a time.
const PAGED = 40;

/** @param {any} app @param {URLSearchParams} place */
export function documentsView(app, place) {
  const name = place.get("document");
  return name === null ? listed(app, place.get("after")) : reader(app, name, place.get("chunk"));
}

/** The address of a document on the page. @param {any} app @param {string} document @param {string} [chunk] */
export function documentPlace(app, document, chunk) {
  const query = new URLSearchParams({ collection: app.collection(), document, ...(chunk ? { chunk } : {}) });
  return `#documents?${query}`;
}

/** The name under which the document of a chunk is found. @param {any} chunk */
export function documentOf(chunk) {
  return chunk.source ? `${chunk.source}: ${chunk.source_document}` : chunk.id;
}

/** @param {any} app @param {string | null} after The last document of the list before. */
function listed(app, after) {
  const list = h("div", {}, h("p", {}, "Reading …"));
  const collection = app.collection();
  const added = after === null ? get("v1/chunks", { collection, filters: "not exists @source", limit: LISTED, fields: "id,content" }) : { chunks: [] };
  app.show(Promise.all([get("v1/documents", { collection, limit: LISTED, after }), added]), list, (/** @type {any[]} */ [found, { chunks }]) => {
    const { documents, next_after: next } = found;
    return [
      documents.length
        ? table("Documents that were read from files", ["Document", "Source", "State", "Chunks", "Written"],
            documents.map((/** @type {any} */ one) => [
              h("a", { href: documentPlace(app, `${one.source}: ${one.source_document}`) }, own(one.source_document)),
              own(one.source), one.state, counted(one.chunks), moment(one.written_at),
            ]), true)
        : null,
      next ? h("p", {}, h("a", { href: `#documents?${new URLSearchParams({ collection, after: next })}` }, "More documents")) : null,
      chunks.length
        ? table(`Documents that were added without a file${chunks.length === LISTED ? `, the first ${LISTED}` : ""}`, ["Id", "Beginning of the text"],
            chunks.map((/** @type {any} */ chunk) => [
              h("a", { href: documentPlace(app, chunk.id) }, own(chunk.id)), own(chunk.content.slice(0, 80)),
            ]))
        : null,
      documents.length || chunks.length
        ? null
        : h("p", {}, "The collection is empty. ", h("code", {}, `semlex index FOLDER --collection ${collection}`), " fills it."),
    ];
  });
  return h("section", { "aria-label": "Documents" }, h("h2", {}, "Documents"), list);
}

/** @param {any} app @param {string} name @param {string | null} hit Id of the chunk to be seen. */
function reader(app, name, hit) {
  const title = h("h2", {}, own(name, { class: "path" }));
  const body = h("div", { class: "reader" }, h("p", {}, "Reading …"));
  const asked = { document: name, collection: app.collection() };
  app.show(Promise.all([get("v1/document", asked), get("v1/outline", asked)]), body, (/** @type {any[]} */ [document, outline]) => {
    fill(title, own(document.name, { class: "path" }));
    const parts = partsOf(document.chunks, isMarkdown(document.name));
    const text = h("div", { class: "text" });

    /** Shows the part of the document around a chunk. @param {number} at @param {boolean} [seen] Whether it gets the focus. */
    function turn(at, seen = true) {
      const first = at - (at % PAGED);
      const articles = parts.slice(first, first + PAGED).map((part, index) => chunkText(part, first + index, hit));
      fill(text, turner(first), document.notes.map((/** @type {string} */ note) => h("p", { class: "aside" }, visible(note))), articles, turner(first));
      if (seen) requestAnimationFrame(() => see(articles[at - first]));
    }

    /** @param {number} first */
    function turner(first) {
      const last = Math.min(first + PAGED, parts.length);
      const button = (/** @type {string} */ label, /** @type {number} */ to) =>
        h("button", { type: "button", disabled: to < 0 || to >= parts.length, on: { click: () => turn(to) } }, label);
      return h("p", { class: "turner aside" },
        `Chunks ${counted(first + 1)} to ${counted(last)} of ${counted(parts.length)}`,
        parts.length > PAGED && [button("Earlier", first - PAGED), button("Later", first + PAGED)]);
    }

    const places = new Map(parts.map(({ chunk }, index) => [chunk.id, index]));
    turn(places.get(hit) ?? 0, places.has(hit));
    const headings = outline.headings.map((/** @type {any} */ heading) => {
      const at = places.get(heading.chunk_ids[0]);
      const attributes = { type: "button", disabled: at === undefined, on: { click: () => turn(at ?? 0) } };
      return h("li", { class: `level-${Math.min(heading.level, 4)}` }, h("button", attributes, own(heading.title)));
    });
    return [headings.length ? h("nav", { class: "outline", "aria-label": "Headings" }, h("ol", {}, headings)) : null, text];
  });
  return h("section", { "aria-label": "Document" }, h("p", {}, h("a", { href: `#documents?${new URLSearchParams({ collection: app.collection() })}` }, "All documents")), title, body);
}

/** @param {HTMLElement} section */
function see(section) {
  section.focus({ preventScroll: true });
  section.scrollIntoView({ block: "start" });
}

/**
 * What each chunk adds to those before it.
 * @param {any[]} chunks @param {boolean} markdown
 */
function partsOf(chunks, markdown) {
  let end = -1;
  let inCode = false;
  let above = "";
  return chunks.map((chunk) => {
    const shared = chunk.char_start === null ? 0 : Math.max(0, end - chunk.char_start);
    end = Math.max(end, chunk.char_end ?? -1);
    // The library counts characters, this language halves of some.
    const text = shared ? [...chunk.content].slice(shared).join("") : chunk.content;
    const headings = chunk.heading_path.join(" › ");
    const part = { chunk, text, markdown, inCode, heading: markdown || headings === above ? "" : headings };
    inCode = markdown && codeBehind(text, inCode);
    above = headings;
    return part;
  });
}

/** @param {ReturnType<typeof partsOf>[number]} part @param {number} index @param {string | null} hit */
function chunkText({ chunk, text, markdown, inCode, heading }, index, hit) {
  const isHit = chunk.id === hit;
  return h("article", { class: isHit ? "chunk is-hit" : "chunk", tabindex: "-1", "aria-label": `Chunk ${index + 1}${isHit ? ", the hit" : ""}` },
    h("p", { class: "aside" }, isHit && h("strong", {}, "The hit: "), `chunk ${index + 1}${chunk.place && ", "}`, own(chunk.place)),
    heading && h("h3", {}, own(heading)),
    markdown ? drawn(text, inCode) : h("pre", { dir: "auto" }, visible(text)));
}
