// The page's parts, brought together.

import { get, post } from "./api.js";
import { clock } from "./clock.js";
import { Lane } from "./lane.js";
import { lengths } from "./lengths.js";
import { Panel } from "./panel.js";
import { Requests } from "./requests.js";
import { compare, fromFragment } from "./rounds.js";
import { themes } from "./theme.js";

const $ = (id) => document.getElementById(id);
const requests = new Requests($("request"));
const told = { chosen: (round) => panel.choose(round), changed: () => schedule() };
const fast = new Lane($("fast"), told);
const plain = new Lane($("plain"), told);
const panel = new Panel({ rounds: () => fast.rounds, changed: () => schedule() });
// Of all races since the page was opened: tokens compared, and those of them that are the same.
const races = { ended: 0, compared: 0, same: 0 };
let racing = false, running = null, drawing = false;

/** Draw once per frame, however many rounds ended in it. */
function schedule() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    draw();
  });
}

function draw() {
  const newest = fast.rounds[fast.rounds.length - 1];
  if (newest && newest !== panel.round) panel.follow(newest);
  const choose = (round) => panel.choose(round);
  for (const [id, figure] of [["clock", clockFigure], ["lengths", lengthsFigure]]) {
    const place = document.querySelector(`#${id} .figure`);
    place.replaceChildren(figure(Math.max(260, place.clientWidth), choose));
  }
  if (racing) verdict();
}

const clockFigure = (width, choose) => clock(fast.rounds, racing ? plain.rounds : null, panel.round, choose, width);
const lengthsFigure = (width, choose) => lengths(fast.rounds, panel.round, choose, width);

function verdict() {
  const { compared, same } = compare(fast.ids, plain.ids);
  const ended = fast.finished && plain.finished;
  const differs = same < compared || (ended && fast.ids.length !== plain.ids.length);
  $("verdict").classList.toggle("differs", differs);
  let text = differs ? `differs from token ${same + 1} on` : `identical ${same}/${compared}`;
  if (ended) text += `, ${(plain.seconds / fast.seconds).toFixed(2)}x as fast`;
  const all = races.ended + (ended ? 0 : 1);
  if (all > 1) text += `; ${all} races: ${races.same + (ended ? 0 : same)}/${races.compared + (ended ? 0 : compared)}`;
  $("verdict").textContent = text;
}

async function start(race) {
  if (!$("request").reportValidity()) return;
  again.never();
  running?.abort();
  const mine = (running = new AbortController());
  const { path, shown } = requests;
  racing = race;
  $("plain").hidden = !race;
  $("problem").hidden = true;
  $("verdict").textContent = "";
  $("stop").disabled = false;
  panel.clear();
  const how = { shown, slower: Number($("slow").value), signal: mine.signal };
  try {
    const both = [fast.run(path, requests.body(true, race), how)];
    if (race) both.push(plain.run(path, requests.body(false, race), how));
    else plain.clear();
    await Promise.all(both);
    if (race) {
      const { compared, same } = compare(fast.ids, plain.ids);
      races.ended += 1;
      races.compared += compared;
      races.same += same;
    } else {
      requests.answered(fast.text);
      $("forget").hidden = !requests.turns.length;
    }
  } catch (error) {
    if (mine.signal.aborted) return;
    mine.abort();
    $("problem").textContent = error.message;
    $("problem").hidden = false;
  }
  if (running === mine) $("stop").disabled = true;
  draw();
  // For whoever waits for the end of a run: how many have ended.
  $("output").dataset.ended = String(Number($("output").dataset.ended ?? 0) + 1);
}

function stop() {
  running?.abort();
  $("stop").disabled = true;
}

async function health() {
  try {
    const { verifier, drafter } = await get("health");
    const drafts = drafter ? (drafter.refused ?? `drafts by ${drafter.model}`) : "no drafter, plain decoding";
    $("served").textContent = `${verifier.model}, numerics ${verifier.numerics}; ${drafts}`;
    return drafter !== null;
  } catch (error) {
    $("served").textContent = error.message;
    return false;
  }
}

async function kill() {
  $("kill").disabled = true;
  try {
    await post("playground/kill-drafter", {});
    $("served").textContent = "the drafter is killed";
    for (let back = false; !back;) {
      await new Promise((resolve) => setTimeout(resolve, 1000));
      back = await health();
    }
  } catch (error) {
    $("served").textContent = error.message;
  }
  $("kill").disabled = false;
}

function later(action, ms) {
  let timer = 0;
  const soon = () => {
    soon.never();
    timer = setTimeout(action, ms);
  };
  soon.never = () => clearTimeout(timer);
  return soon;
}

$("request").addEventListener("submit", (event) => {
  event.preventDefault();
  start(false);
});
$("race").addEventListener("click", () => start(true));
$("stop").addEventListener("click", stop);
$("kill").addEventListener("click", kill);
$("forget").addEventListener("click", () => {
  requests.forget();
  $("forget").hidden = true;
});
const again = later(() => start(true), 250);
$("temperature").addEventListener("input", () => {
  $("temperature-value").textContent = $("temperature").value;
  if (racing) again();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  start(event.shiftKey);
});
addEventListener("resize", later(draw, 100));
addEventListener("hashchange", linked);

function linked() {
  const round = fromFragment(location.hash);
  if (round) panel.choose(round);
}

themes($("theme"));
draw();
linked();
health();
get("playground/options").then((options) => {
  $("kill").hidden = !options.kill_drafter;
  requests.offer(options);
}, () => {});
