// Requests the numbers for the typed context and draws them. Words are inserted as text, never as HTML.
const at = (id) => document.getElementById(id);
const percent = (p) => (p >= 0.001 ? `${(100 * p).toFixed(1)}%` : p > 0 ? `1 in ${Math.round(1 / p).toLocaleString("en")}` : "never");
let shown = null, units = null, chosen = 0, asked = 0, current = false;

function make(tag, props = {}, ...children) {
  const element = Object.assign(document.createElement(tag), props);
  element.append(...children);
  return element;
}

// Colours an element by a number: blue below zero, orange above zero, and stronger for larger magnitudes.
function paint(element, value, scale) {
  const share = Math.round(100 * Math.min(Math.abs(value) / (scale || 1), 1));
  element.style.background = `color-mix(in srgb, var(--${value < 0 ? "minus" : "plus"}) ${share}%, var(--zero))`;
  element.title = value.toFixed(3);
  return element;
}

function bar(p, largest, className = "") {
  const inner = make("div", { className });
  inner.style.width = `${(100 * p) / largest}%`;
  return make("td", { className: "bar" }, inner);
}

const number = (text) => make("td", { className: "number", textContent: text });
const heads = (...names) => make("tr", {}, ...names.map((name) => make("th", { textContent: name, scope: "col" })));

function drawFeatures() {
  const scale = Math.max(...shown.words.flatMap((word) => word.features.map(Math.abs)));
  at("features").replaceChildren(...shown.words.map((word) => {
    const cells = word.features.map((value) => paint(make("div"), value, scale));
    const className = word.word === "<rare>" ? "word rare" : "word";
    return make("div", { className }, make("b", { textContent: word.word }), make("div", { className: "cells" }, ...cells));
  }));
}

function drawHidden() {
  chosen = Math.min(chosen, Math.max(shown.hidden.length - 1, 0));
  const focused = at("hidden").contains(document.activeElement);
  at("hidden").replaceChildren(...shown.hidden.map((value, k) => {
    const label = `unit ${k + 1}: ${value.toFixed(2)}`;
    const button = paint(make("button", { type: "button", ariaLabel: label, tabIndex: k === chosen ? 0 : -1 }), value, 1);
    button.onmouseenter = button.onfocus = button.onclick = () => choose(k);
    return button;
  }));
  at("direct").hidden = !shown.direct;
  if (focused) at("hidden").children[chosen]?.focus();
  choose(chosen);
}

function choose(k) {
  chosen = k;
  if (!shown.hidden.length) return at("unit").replaceChildren("This network has no hidden layer.");
  [...at("hidden").children].forEach((button, i) => {
    button.classList.toggle("chosen", i === k);
    button.tabIndex = i === k ? 0 : -1;
  });
  const value = shown.hidden[k];
  const drives = shown.words.map((word, i) => `${word.word} ${shown.drives[k][i].toFixed(2)}`).join(",  ");
  const raised = units?.[value < 0 ? "negative" : "positive"][k]?.join(", ") ?? "…";
  at("unit").replaceChildren(
    make("div", { textContent: `Unit ${k + 1} is ${value.toFixed(2)}. Each word adds: ${drives}` }),
    make("div", { textContent: `It raises the scores of these words most: ${raised}` }),
  );
}

at("hidden").onkeydown = (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  at("hidden").children[(chosen + step + shown.hidden.length) % shown.hidden.length].focus();
};

function drawNext() {
  at("rare").hidden = ![...shown.words, ...shown.next, ...(shown.ngram?.words ?? [])].some((row) => row.word === "<rare>");
  const largest = shown.next[0].p;
  at("next").replaceChildren(heads("word", "score y", "probability", ""), ...shown.next.map((row) =>
    make("tr", {}, make("td", { textContent: row.word }), number(row.score.toFixed(2)), number(percent(row.p)), bar(row.p, largest))));
}

function drawNgram() {
  const ngram = shown.ngram;
  at("beside").hidden = !ngram;
  if (!ngram) return;
  at("orders").replaceChildren(...ngram.orders.map((order) => make("li", {
    textContent: `“${order.context} …”: ` + (order.followers ? `followed by ${order.followers.toLocaleString("en")} different word${order.followers === 1 ? "" : "s"}` : "never seen: the model backs off"),
  })));
  const largest = Math.max(...ngram.words.flatMap((row) => [row.p, row.network]));
  at("ngram").replaceChildren(heads("word", "n-gram", "", "matched", "network", ""), ...ngram.words.map((row) =>
    make("tr", {}, make("td", { textContent: row.word }), number(percent(row.p)), bar(row.p, largest, "other"),
      make("td", { textContent: row.order === null ? "" : row.order > 1 ? `last ${row.order - 1}` : "none" }),
      number(percent(row.network)), bar(row.network, largest))));
}

// Requests of the page: the numbers for a context, the words whose scores the units raise, and the state of training.
const get = async (path) => (await fetch(path)).json();
const tour = globalThis.tour ?? {  // static.js defines its own requests
  network: (text) => get(`network?${new URLSearchParams({ text })}`), units: () => get("units"), training: () => get("training"),
};
const silence = { error: "The tour does not answer; is it still running?" };

// Shows the numbers for the text, or an error. `current` is true if the numbers belong to the text.
async function ask() {
  const turn = ++asked;
  history.replaceState(null, "", `?${new URLSearchParams({ text: at("text").value })}`);
  let answer;
  try {
    answer = await tour.network(at("text").value);
    if (!answer.error && units?.step !== answer.step) units = await tour.units();
  } catch { answer = silence; }
  if (turn !== asked) return;
  at("note").textContent = answer.error ?? answer.note;
  current = !answer.error;
  if (!current) return;
  shown = answer;
  drawFeatures(); drawHidden(); drawNext(); drawNgram();
}

function drawCurve(training) {
  const points = [...training.train, ...training.valid].filter((point) => point[1] !== null);
  const state = training.finished ? "Finished" : "Not finished";
  at("progress").textContent = `${state}: update ${training.step.toLocaleString("en")}, epoch ${training.epoch.toFixed(2)}` +
    ({ undefined: ".", null: ".", 0: "; not validated yet: the cells show the initial numbers." }[shown?.best_step]
      ?? `; the cells show the best validation${training.finished ? "" : " so far"}, update ${shown.best_step.toLocaleString("en")}.`);
  if (!points.length) return;
  const last = Math.max(...points.map((point) => point[0]), 1), logs = points.map((point) => Math.log(point[1]));
  const low = Math.min(...logs), high = Math.max(...logs, low + 0.01);
  const x = (step) => 70 + (500 * step) / last, y = (log) => 15 + (185 * (high - log)) / (high - low);
  const svg = (tag, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    element.textContent = text;
    return element;
  };
  const drawn = [0, 0.5, 1].flatMap((share) => {
    const log = low + share * (high - low);
    return [svg("line", { x1: 70, x2: 570, y1: y(log), y2: y(log) }), svg("text", { x: 62, y: y(log) + 5, "text-anchor": "end" }, Math.exp(log).toFixed(Math.exp(log) < 100 ? 1 : 0))];
  });
  let above = -20;
  for (const split of ["train", "valid"]) {
    const line = training[split].filter((point) => point[1] !== null);
    if (!line.length) continue;
    drawn.push(svg("polyline", { class: split, points: line.map(([step, value]) => `${x(step)},${y(Math.log(value))}`).join(" ") }));
    const end = y(Math.log(line.at(-1)[1])) + 5;
    above = Math.abs(end - above) < 17 ? above + (end < above ? -17 : 17) : end;
    drawn.push(svg("text", { x: x(line.at(-1)[0]) + 6, y: above }, split));
  }
  drawn.push(svg("text", { x: 570, y: 228, "text-anchor": "end" }, `update ${last.toLocaleString("en")}`));
  at("curve").replaceChildren(...drawn);
}

async function watch() {
  const training = await tour.training().catch(() => silence);
  const isNew = () => !training.error && [shown, units].some((part) => part?.step !== training.checkpoint);
  if (!current || isNew()) await ask();
  if (training.error) at("progress").textContent = training.error;
  else drawCurve(training);
  if (!training.finished || !current || isNew()) setTimeout(watch, 3000);
}

const system = matchMedia("(prefers-color-scheme: dark)");
const theme = () => JSON.parse(localStorage.getItem("theme"));
const colour = () => document.body.classList.toggle("body--dark", theme() ?? system.matches);
system.onchange = colour;
at("theme").onclick = () => {
  localStorage.setItem("theme", JSON.stringify({ null: false, false: true, true: null }[theme()]));
  colour();
};
colour();

let timer;
at("text").oninput = () => { clearTimeout(timer); timer = setTimeout(ask, 150); };
at("text").value = new URLSearchParams(location.search).get("text") ?? "the cat is walking in the";
watch();
