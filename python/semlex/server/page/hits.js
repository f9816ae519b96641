/**
 * The list of hits, with keys: j and k move, 0 to 3 judge, Enter opens the document.
 */

import { h, own, say, unseen, visible } from "./dom.js";
import { loneScore, scaleOf, scoreOf } from "./score.js";
import { marked } from "./words.js";

const RELEVANCE = ["no answer", "on the topic", "answers a part", "answers it"];

/**
 * @param {object} does
 * @param {(hit: any) => void} does.open Opens the document of a hit.
 * @param {(hit: any, place: HTMLElement) => void} does.why Shows in a place why a hit is there.
 * @param {(hit: any, change: (before: number | null) => number | null) => void} does.judge Changes its judgement; null: none.
 * @param {(id: string, on: boolean) => void} does.highlight Shows it in the picture.
 */
export function hitList(does) {
  const element = h("ol", { class: "hits", "aria-label": "Hits" });
  /** @type {Map<string, ReturnType<typeof card>>} */
  let cards = new Map();
  /** @type {any[]} */
  let shown = [];
  element.addEventListener("keydown", onKey);

  /** @param {any[]} hits */
  function start(hits) {
    cards = new Map(hits.map((hit) => [hit.id, card(hit, does)]));
  }

  /**
   * @param {{hit: any, parts: any}[]} rows Best first. @param {number} weight @param {any} measured
   */
  function update(rows, weight, measured) {
    const scale = measured === null ? null : scaleOf(rows);
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement : null;
    shown = rows.map(({ hit }) => hit);
    const items = rows.map(({ hit, parts }, index) => {
      const made = cards.get(hit.id);
      if (!made) throw new Error("a hit without a card");
      made.place(index + 1);
      made.score?.update(parts, weight, measured, scale);
      return made.element;
    });
    move(items);
    if (focused && element.contains(focused)) focused.focus({ preventScroll: true });
    reach();
  }

  /** Puts the cards into their order, and lets each slide there. @param {HTMLElement[]} items */
  function move(items) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const before = new Map(still ? [] : [...element.children].map((one) => [one, one.getBoundingClientRect().top]));
    element.replaceChildren(...items);
    for (const item of items) {
      const from = before.get(item);
      const by = from === undefined ? 0 : from - item.getBoundingClientRect().top;
      if (by) item.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: 180, easing: "ease-out" });
    }
  }

  /** One hit is reached by the Tab key; the others from there. */
  function reach() {
    const all = articles();
    if (!all.some((one) => one.tabIndex === 0)) all.forEach((one, index) => (one.tabIndex = index ? -1 : 0));
  }

  function articles() {
    return /** @type {HTMLElement[]} */ ([...element.querySelectorAll("article")]);
  }

  /** @param {number} index */
  function focus(index) {
    const all = articles();
    const next = all[Math.min(Math.max(index, 0), all.length - 1)];
    for (const one of all) one.tabIndex = one === next ? 0 : -1;
    next?.focus();
  }

  /** @param {number} by */
  function step(by) {
    const at = articles().findIndex((one) => one.contains(document.activeElement));
    focus(at < 0 ? 0 : at + by);
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    const at = articles().indexOf(/** @type {HTMLElement} */ (event.target));
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^[0-3]$/.test(event.key)) does.judge(shown[at], () => Number(event.key));
    else if (event.key === "Backspace" || event.key === "Delete") does.judge(shown[at], () => null);
    else if (event.key === "Enter") does.open(shown[at]);
    else return;
    event.preventDefault();
  }

  return {
    element,
    start,
    update,
    step,
    /** @param {string} id */
    choose: (id) => focus(shown.findIndex((hit) => hit.id === id)),
    /** @param {Record<string, number>} judged */
    showJudgements: (judged) => cards.forEach((made, id) => made.judged(judged[id] ?? null)),
  };
}

/** @param {any} hit @param {any} does */
function card(hit, does) {
  const number = h("span", { class: "rank" });
  const reasons = h("div", { role: "status" });
  const score = hit.measured ? scoreOf(hit) : null;
  const buttons = RELEVANCE.map((meaning, value) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": "false",
        on: { click: () => does.judge(hit, (before) => (before === value ? null : value)) },
      },
      `${value} ${meaning}`,
    ),
  );
  const article = h(
    "article",
    {
      tabindex: "-1",
      "aria-label": `Hit ${visible(placeOf(hit))}`,
      on: { focusin: () => does.highlight(hit.id, true), focusout: () => does.highlight(hit.id, false) },
    },
    h(
      "header",
      {},
      number,
      h("h3", {}, placed(hit)),
      hit.heading_path.length ? own(hit.heading_path.join(" › "), { class: "headings" }) : null,
    ),
    h("p", { class: "excerpt", dir: "auto" }, marked(hit.excerpt || hit.content, hit.content)),
    score ? score.element : loneScore(hit),
    h(
      "footer",
      {},
      h("button", { type: "button", on: { click: () => does.open(hit) } }, "Open the document"),
      h("button", { type: "button", on: { click: () => does.why(hit, reasons) } }, "Why here?"),
      h("span", { role: "group", "aria-label": "Does it answer the question?", class: "judge" }, "Judge: ", buttons),
    ),
    reasons,
  );
  return {
    element: h("li", { "data-id": hit.id }, article),
    score,
    /** @param {number} rank */
    place: (rank) => number.replaceChildren(unseen("Place "), String(rank)),
    /** @param {number | null} value */
    judged(value) {
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(index === value)));
      article.classList.toggle("is-judged", value !== null);
    },
  };
}

/** Where in its document a hit is: behind a colon the line, else a page, a row or a cell. @param {any} hit */
export function behind(hit) {
  if (!hit.place || !hit.source_document) return "";
  return hit.place.startsWith("line ") ? hit.place.replace("line ", ":") : `, ${hit.place}`;
}

/** Document and place as elements: a name cannot reach over its place. @param {any} hit */
function placed(hit) {
  return [own(hit.source_document || hit.id), own(behind(hit))];
}

/** Document and place, or the id. @param {any} hit */
export function placeOf(hit) {
  return (hit.source_document || hit.id) + behind(hit);
}

/** @param {any} hit @param {number | null} value */
export function sayJudged(hit, value) {
  say(value === null ? `${placeOf(hit)}: no longer judged` : `${placeOf(hit)}: ${value}, ${RELEVANCE[value]}`);
}
