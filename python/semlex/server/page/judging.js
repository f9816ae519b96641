/**
 * What is judged for questions: stored by the server where it may, else downloaded.
 */

import { get, post } from "./api.js";
import { fill, h, own } from "./dom.js";

/**
 * @param {{collection: () => string, stores: () => boolean}} app
 */
export function judging(app) {
  const body = h("div");
  const element = /** @type {HTMLDetailsElement} */ (
    h("details", { class: "judging", open: app.stores(), on: { toggle } }, h("summary", {}, "Judge these hits"), body));
  /** @type {Map<string, Record<string, number>>} By collection and question, where the server stores none. */
  const kept = new Map();
  let question = "";
  /** @type {Record<string, number>} */
  let judged = {};
  let folder = "";
  let questions = 0;

  /** @param {string} asked @returns {Promise<Record<string, number>>} What is judged already. */
  async function open(asked) {
    question = asked;
    if (app.stores()) {
      take(await get("v1/judgements", { question, collection: app.collection() }));
    } else {
      judged = kept.get(key()) ?? {};
    }
    show();
    return judged;
  }

  /** @param {string} id @param {number | null} value @returns {Promise<Record<string, number>>} */
  async function note(id, value) {
    if (app.stores()) {
      take(await post("v1/judgements", { question, collection: app.collection(), judgements: { [id]: value } }));
    } else {
      const { [id]: _, ...others } = judged;
      judged = value === null ? others : { ...others, [id]: value };
      if (Object.keys(judged).length) kept.set(key(), judged);
      else kept.delete(key());
    }
    show();
    element.open = true;
    return judged;
  }

  /** @param {any} found */
  function take(found) {
    ({ judgements: judged, folder, questions } = found);
  }

  /** Buttons on each hit are seen while this is open. */
  function toggle() {
    element.parentElement?.classList.toggle("judges", element.open);
  }

  function key() {
    return JSON.stringify([app.collection(), question.split(/\s+/).filter(Boolean).join(" ")]);
  }

  function show() {
    const mine = [...kept].filter(([name]) => JSON.parse(name)[0] === app.collection());
    const count = app.stores() ? questions : mine.length;
    const target = app.stores() ? quoted(folder) : ".";
    fill(
      body,
      h(
        "p",
        { class: "aside" },
        "On a hit, press ", h("kbd", {}, "0"), " to ", h("kbd", {}, "3"), " (no answer … answers it), ",
        h("kbd", {}, "Delete"), " to take it back, ", h("kbd", {}, "j"), " and ", h("kbd", {}, "k"), " to move. ",
        `Judged: ${Object.keys(judged).length} of this question's hits; questions in all: ${count}.`,
      ),
      count === 0
        ? null
        : [
            app.stores()
              ? h("p", {}, "They are stored in ", own(folder, { class: "path" }), ".")
              : h(
                  "p",
                  {},
                  "This server stores none (", h("code", {}, "semlex ui --judgements FOLDER"), " does): ",
                  ["queries.tsv", "qrels.tsv"].map((name, index) => [
                    h("button", { type: "button", on: { click: () => download(name, lines(mine)[index]) } }, name),
                    " ",
                  ]).flat(),
                ),
            h("p", {}, "Which fusion wins on these questions:"),
            h("pre", { tabindex: "0" }, h("code", {}, `semlex eval run ${target} --collection ${app.collection()}`)),
          ],
    );
  }

  return { element, open, note };
}

/** @param {string} path For a shell. */
function quoted(path) {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

/**
 * The two files, as `semlex eval` reads them.
 * @param {[string, Record<string, number>][]} judged
 * @returns {[string, string]}
 */
function lines(judged) {
  const queries = judged.map(([name], index) => `q${index + 1}\t${JSON.parse(name)[1]}\n`);
  const rows = judged.flatMap(([, values], index) =>
    Object.entries(values)
      .filter(([id]) => id === id.trim() && !/[\t\r\n]/.test(id))
      .map(([id, value]) => `q${index + 1}\t${id}\t${value}\n`),
  );
  return [queries.join(""), `query-id\tcorpus-id\tscore\n${rows.join("")}`];
}

/** @param {string} name @param {string} text */
function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/tab-separated-values" }));
  h("a", { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}
