/**
 * The documents of a collection, and one of them: its headings beside its chunks.
 */

import { get } from "./api.js";
import { counted, fill, h, moment, own, table } from "./dom.js";

const LISTED = 200;

/** @param {any} app @param {URLSearchParams} place */
export function documentsView(app, place) {
  const name = place.get("document");
  return name === null ? listed(app) : reader(app, name, place.get("chunk"));
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

/** @param {any} app */
function listed(app) {
  const list = h("div", {}, h("p", {}, "Reading …"));
  app.show(
    Promise.all([
      get("/v1/documents", { collection: app.collection() }),
      get("/v1/chunks", { collection: app.collection(), limit: LISTED }),
    ]),
    list,
    (/** @type {any[]} */ [documents, { chunks }]) => {
      const files = documents.documents;
      const added = chunks.filter((/** @type {any} */ chunk) => !chunk.source);
      return [
        files.length
          ? table("Documents that were read from files", ["Document", "Source", "State", "Chunks", "Written"],
              files.map((/** @type {any} */ one) => [
                h("a", { href: documentPlace(app, `${one.source}: ${one.source_document}`) }, own(one.source_document)),
                own(one.source), one.state, counted(one.chunks), moment(one.written_at),
              ]))
          : null,
        added.length
          ? table(`Documents that were added${chunks.length === LISTED ? `, of the first ${LISTED} chunks` : ""}`, ["Id", "Begins"],
              added.map((/** @type {any} */ chunk) => [
                h("a", { href: documentPlace(app, chunk.id) }, own(chunk.id)), own(chunk.content.slice(0, 80)),
              ]))
          : null,
        files.length || added.length
          ? null
          : h("p", {}, "The collection is empty. ",
              h("code", {}, `semlex index FOLDER --collection ${app.collection()}`), " fills it."),
      ];
    },
  );
  return h("section", { "aria-label": "Documents" }, h("h2", {}, "Documents"), list);
}

/** @param {any} app @param {string} name @param {string | null} hit Id of the chunk to be seen. */
function reader(app, name, hit) {
  const title = h("h2", {}, own(name, { class: "path" }));
  const body = h("div", { class: "reader" }, h("p", {}, "Reading …"));
  const asked = { document: name, collection: app.collection() };
  app.show(Promise.all([get("/v1/document", asked), get("/v1/outline", asked)]), body, (/** @type {any[]} */ [document, outline]) => {
    fill(title, own(document.name, { class: "path" }));
    const sections = chunkTexts(document.chunks, hit);
    const headings = outline.headings.map((/** @type {any} */ heading) => {
      const target = sections.get(heading.chunk_ids[0]);
      const button = h("button", { type: "button", on: { click: () => see(target) } }, own(heading.title));
      if (!target) button.setAttribute("disabled", "");
      return h("li", { class: `level-${Math.min(heading.level, 4)}` }, button);
    });
    const found = hit === null ? undefined : sections.get(hit);
    if (found) requestAnimationFrame(() => see(found));
    return [
      headings.length ? h("nav", { class: "outline", "aria-label": "Headings" }, h("ol", {}, headings)) : null,
      h("div", { class: "text" },
        h("p", { class: "aside" },
          `Chunks: ${counted(document.chunks.length)}. What two of them share is grey in the second.`),
        document.notes.map((/** @type {string} */ note) => h("p", { class: "aside" }, note)),
        [...sections.values()]),
    ];
  });
  return h("section", { "aria-label": "Document" }, h("p", {}, h("a", { href: "#documents" }, "All documents")), title, body);
}

/** @param {HTMLElement | undefined} section */
function see(section) {
  section?.focus({ preventScroll: true });
  section?.scrollIntoView({ block: "start" });
}

/** @param {any[]} chunks @param {string | null} hit @returns {Map<string, HTMLElement>} */
function chunkTexts(chunks, hit) {
  let end = -1;
  return new Map(
    chunks.map((chunk, index) => {
      const shared = chunk.char_start === null ? 0 : Math.max(0, end - chunk.char_start);
      end = Math.max(end, chunk.char_end ?? -1);
      // The library counts characters, this language halves of some.
      const split = shared ? [...chunk.content].slice(0, shared).join("").length : 0;
      const line = chunk.line === null ? "" : `, line ${chunk.line}`;
      const page = chunk.page === null ? "" : `, page ${chunk.page}`;
      const isHit = chunk.id === hit;
      const name = `Chunk ${index + 1}${isHit ? ", the hit" : ""}`;
      return [
        chunk.id,
        h("article", { class: isHit ? "chunk is-hit" : "chunk", tabindex: "-1", "aria-label": name },
          h("p", { class: "aside" }, `Chunk ${index + 1}${line}${page}`, isHit && h("strong", {}, " the hit"), " ",
            own(chunk.heading_path.join(" › "))),
          h("pre", { dir: "auto" },
            split > 0 && h("span", { class: "shared" }, chunk.content.slice(0, split)), chunk.content.slice(split))),
      ];
    }),
  );
}
