/**
 * The collections, and the jobs with their progress.
 */

import { get, post } from "./api.js";
import { counted, fill, h, latest, moment, own, say, table, unseen } from "./dom.js";

const POLL_MS = 2000;
const HEADS = ["Kind", "Collection", "State", "Progress", "Submitted", "Action"];
/** @type {Record<string, string[]>} Actions, with the states in which a job takes them. */
const ACTIONS = { Cancel: ["queued", "running"], Retry: ["failed", "cancelled"] };

/** @param {any} app */
export function collectionsView(app) {
  const collections = h("div", {}, h("p", {}, "Reading …"));
  app.show(get("v1/collections"), collections, (/** @type {any} */ found) =>
    table("Collections of this server", ["Name", "Documents", "Chunks"], found.collections.map((/** @type {any} */ one) => [
      h("a", { href: `#search?${new URLSearchParams({ collection: one.name })}` }, own(one.name)),
      counted(one.documents), counted(one.chunks) + (one.estimated ? " (estimated)" : ""),
    ])));
  return h("section", { "aria-label": "Collections and jobs" }, h("h2", {}, "Collections"), collections, h("h2", {}, "Jobs"), jobList(app));
}

/** The jobs, read again for as long as they are shown and somebody can see them. @param {any} app */
function jobList(app) {
  const element = h("div", { class: "jobs" }, h("p", {}, "Reading …"));
  /** @type {Map<string, ReturnType<typeof jobCells>>} */
  let rows = new Map();

  async function read() {
    const isWanted = latest(element);
    try {
      const { jobs } = await get("v1/jobs");
      if (isWanted()) show(jobs);
    } catch (error) {
      if (!isWanted() || app.refused(error)) return;
      rows = new Map();
      fill(element, h("p", { class: "error" }, /** @type {any} */ (error).text ?? String(error)));
    }
  }

  /** Changes what is different: focus, selected text and open errors stay. @param {any[]} jobs */
  function show(jobs) {
    const before = [...rows.keys()].join();
    rows = new Map(jobs.map((job) => [job.id, rows.get(job.id) ?? jobCells(app, job, read)]));
    jobs.forEach((job) => rows.get(job.id)?.update(job));
    if (jobs.length === 0) {
      fill(element, h("p", {}, "No jobs. ", h("code", {}, "semlex jobs submit index FOLDER"), " submits one."));
    } else if (before !== [...rows.keys()].join()) {
      const focused = /** @type {HTMLElement | null} */ (document.activeElement);
      const all = [...rows.values()].map(({ cells }) => cells);
      const width = all.some((cells) => cells.at(-1)) ? HEADS.length : HEADS.length - 1;
      fill(element, table("Jobs, the newest first", HEADS.slice(0, width), all.map((cells) => cells.slice(0, width)), true));
      if (focused && element.contains(focused)) focused.focus({ preventScroll: true });
    }
  }

  async function poll() {
    do {
      if (!document.hidden) await read();
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    } while (element.isConnected);
  }

  queueMicrotask(poll);
  return element;
}

/**
 * The cells of a job.
 * @param {any} app @param {any} job @param {() => Promise<void>} changed Called after an action.
 */
function jobCells(app, job, changed) {
  const title = `${job.kind} of ${job.collection}`;
  const [state, progress] = [h("div"), h("div")];
  // Each action has a place of its own, so that a second quick click never does the opposite of the first.
  const buttons = Object.keys(ACTIONS).map((name) => /** @type {HTMLButtonElement} */ (
    h("button", { type: "button", value: name, on: { click: () => act(name) } }, name, unseen(` ${title}`))));
  const actions = app.changes(job.kind) ? h("div", { class: "actions" }, buttons) : null;
  let shown = "";

  /** @param {any} found The job as it is now. */
  function update(found) {
    fill(progress, progressOf(found.progress));
    const now = JSON.stringify([found.state, found.cancel_wanted, found.error]);
    if (now === shown) return;
    shown = now;
    const ends = found.state === "running" && found.cancel_wanted;
    const text = h("span", { class: `state ${found.state}` }, found.state, ends && ", ends after its batch");
    fill(state, found.error ? h("details", {}, h("summary", {}, text), own(found.error.message)) : text);
    const hadFocus = actions?.contains(document.activeElement);
    for (const button of buttons) button.disabled = ends || !ACTIONS[button.value].includes(found.state);
    const next = buttons.find((button) => !button.disabled) ?? actions?.closest(".scrolled");
    if (hadFocus) /** @type {HTMLElement} */ (next).focus({ preventScroll: true });
  }

  /** @param {string} name */
  async function act(name) {
    try {
      await post(`v1/jobs/${job.id}/${name.toLowerCase()}`, {});
    } catch (error) {
      if (!app.refused(error)) say(`${title}: ${/** @type {any} */ (error).text ?? error}`);
    }
    await changed();
  }

  return { cells: [job.kind, own(job.collection), state, progress, moment(job.submitted_at), actions], update };
}

/** @param {any} given */
function progressOf(given) {
  if (!given) return null;
  const { stage, done, total, unit } = given;
  const text = `${stage}: ${counted(done)}${total === null ? "" : ` of ${counted(total)}`} ${unit}`;
  return h("span", {}, total ? h("progress", { max: total, value: done, "aria-label": stage }) : null, " ", text);
}
