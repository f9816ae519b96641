/**
 * The collections, and the jobs with their progress.
 */

import { get } from "./api.js";
import { counted, fill, h, moment, own, table } from "./dom.js";

const POLL_MS = 2000;

/** @param {any} app */
export function collectionsView(app) {
  const collections = h("div", {}, h("p", {}, "Reading …"));
  const jobs = h("div", {}, h("p", {}, "Reading …"));
  app.show(get("v1/collections"), collections, (/** @type {any} */ found) =>
    table("Of this server", ["Name", "Documents", "Chunks"], found.collections.map((/** @type {any} */ one) => [
      h("a", { href: `#search?${new URLSearchParams({ collection: one.name })}` }, own(one.name)),
      counted(one.documents), counted(one.chunks) + (one.estimated ? " (estimated)" : ""),
    ])));
  poll(app, jobs);
  return h("section", { "aria-label": "Collections and jobs" }, h("h2", {}, "Collections"), collections, h("h2", {}, "Jobs"), jobs);
}

/** Asks again for as long as the view is shown and somebody can see it. @param {any} app @param {HTMLElement} place */
async function poll(app, place) {
  for (let first = true; first || place.isConnected; first = false) {
    if (!document.hidden) {
      try {
        fill(place, jobTable((await get("v1/jobs")).jobs));
      } catch (error) {
        if (app.refused(error)) return;
        fill(place, h("p", { class: "error" }, /** @type {any} */ (error).text ?? String(error)));
      }
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** @param {any[]} jobs */
function jobTable(jobs) {
  if (jobs.length === 0) return h("p", {}, "No jobs. ", h("code", {}, "semlex jobs submit index FOLDER"), " submits one.");
  return table("Jobs, the newest first", ["Kind", "Collection", "State", "Progress", "Submitted"], jobs.map((job) => [
    job.kind, own(job.collection), state(job), progress(job.progress), moment(job.submitted_at),
  ]));
}

/** @param {any} job */
function state(job) {
  const said = h("span", { class: `state ${job.state}` }, job.state);
  return job.error ? h("details", {}, h("summary", {}, said), own(job.error.message)) : said;
}

/** @param {any} given */
function progress(given) {
  if (!given) return "";
  const { stage, done, total, unit } = given;
  const text = `${stage}: ${counted(done)}${total === null ? "" : ` of ${counted(total)}`} ${unit}`;
  return h("span", {}, total ? h("progress", { max: total, value: done, "aria-label": stage }) : null, " ", text);
}
