/**
 * Judgements of hits: the server stores them if it has a folder and the caller may write, else they are downloaded.
 */

import { get, post } from "./api.js";
import { fill, h, own } from "./dom.js";

/**
 * @typedef {object} Judged What is judged of one search.
 * @property {string} collection
 * @property {string} question
 * @property {Record<string, number>} judgements By the ids of hits.
 */

/**
 * @param {{collection: () => string, stores: () => boolean}} app
 * @param {(judgements: Record<string, number>) => void} changed Called with those of the search that is shown.
 */
export function judging(app, changed) {
  const body = h("div");
  const element = /** @type {HTMLDetailsElement} */ (
    h("details", { class: "judging", open: app.stores(), on: { toggle } }, h("summary", {}, "Judge these hits"), body));
  /** @type {Map<string, Record<string, number>>} By collection and question, if the server stores none. */
  const kept = new Map();
  /** @type {Judged} Of the hits that are shown. */
  let shown = { collection: "", question: "", judgements: {} };
  let folder = "";
  let questions = 0;
  let turn = Promise.resolve();

  /** @param {string} collection @param {string} question Of the hits that are shown from now on. */
  function open(collection, question) {
    const judged = (shown = { collection, question, judgements: {} });
    show();
    return inTurn(async () => {
      if (app.stores()) take(judged, await get("v1/judgements", { question, collection }));
      else judged.judgements = kept.get(key(judged)) ?? {};
      if (judged === shown) show();
    });
  }

  /**
   * @param {string} id Of a hit that is shown.
   * @param {(before: number | null) => number | null} change
   * @returns {Promise<number | null>} What it is judged now.
   */
  function note(id, change) {
    const judged = shown;
    return inTurn(async () => {
      const { collection, question, judgements: before } = judged;
      const value = change(before[id] ?? null);
      if (app.stores()) {
        take(judged, await post("v1/judgements", { question, collection, judgements: { [id]: value } }));
      } else {
        const { [id]: _, ...others } = before;
        judged.judgements = value === null ? others : { ...others, [id]: value };
        if (Object.keys(judged.judgements).length) kept.set(key(judged), judged.judgements);
        else kept.delete(key(judged));
      }
      if (judged === shown) show();
      element.open = true;
      return value;
    });
  }

  /**
   * Does one after another: the server keeps what was judged last, and no older answer hides a later one.
   * @template T
   * @param {() => Promise<T>} work
   * @returns {Promise<T>}
   */
  function inTurn(work) {
    const done = turn.then(work);
    turn = done.then(() => {}, () => {});
    return done;
  }

  /** @param {Judged} judged @param {any} found */
  function take(judged, found) {
    ({ judgements: judged.judgements, folder, questions } = found);
  }

  /** Buttons on each hit are seen while this is open. */
  function toggle() {
    element.parentElement?.classList.toggle("judges", element.open);
  }

  /** @param {Judged} judged */
  function key({ collection, question }) {
    return JSON.stringify([collection, question.split(/\s+/).filter(Boolean).join(" ")]);
  }

  function show() {
    changed(shown.judgements);
    const mine = [...kept].filter(([name]) => JSON.parse(name)[0] === shown.collection);
    const count = app.stores() ? questions : mine.length;
    const target = app.stores() ? quoted(folder) : ".";
    fill(
      body,
      h(
        "p",
        { class: "aside" },
        "On a hit, press ", h("kbd", {}, "0"), " to ", h("kbd", {}, "3"), " (no answer … answers it), ",
        h("kbd", {}, "Delete"), " to remove the judgement, ", h("kbd", {}, "j"), " and ", h("kbd", {}, "k"), " to move. ",
        `Judged: ${Object.keys(shown.judgements).length} of this question's hits; ${count} questions in total.`,
      ),
      count === 0
        ? null
        : [
            app.stores()
              ? h("p", {}, "The judgements are stored in ", own(folder, { class: "path" }), ".")
              : h(
                  "p",
                  {},
                  "This server stores no judgements (", h("code", {}, "semlex ui --judgements FOLDER"), " does). Download them: ",
                  ["queries.tsv", "qrels.tsv"].map((name, index) => [
                    h("button", { type: "button", on: { click: () => download(name, lines(mine)[index]) } }, name),
                    " ",
                  ]).flat(),
                ),
            h("p", {}, "This command shows which fusion ranks best for the judged questions:"),
            h("pre", { tabindex: "0" }, h("code", {}, `semlex eval run ${target} --collection ${shown.collection}`)),
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
