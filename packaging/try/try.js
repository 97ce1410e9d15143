// The page: an editor, a run in a worker, and what came out.

import { draw } from "./chart.js";
import { complete } from "./complete.js";
import { count, ms, percent, rate, sentence } from "./words.js";

const at = (name) => new URL(name, import.meta.url);
const data = await (await fetch(at("data.json"))).json();
const root = document.getElementById("try");
root.innerHTML = `
  <div class="bar">
    <select class="start" aria-label="Starting point"></select>
    <label>seed <input class="seed" type="number" min="0" step="1" placeholder="1"></label>
    <button class="run main" title="Ctrl+Enter">Run</button>
    <button class="share">Copy link</button>
    <label class="file">Open a trace (CSV)<input type="file" accept=".csv,.txt,.down,.up" multiple></label>
    <span class="status" role="status"></span>
  </div>
  <div class="editor">
    <textarea spellcheck="false" autocapitalize="off" aria-label="Scenario"></textarea>
    <ul class="options" role="listbox" hidden></ul>
  </div>
  <p class="key files"></p>
  <div class="result"></div>`;
const find = (selector) => root.querySelector(selector);
const [start, seed, editor, options, status, result] = [".start", ".seed", "textarea", ".options", ".status", ".result"].map(find);
const opened = new Map();
const worker = new Worker(at("worker.js"), { type: "module" });
let answer;
let running = false;

const html = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
const colours = () => (document.body.dataset.mdColorScheme === "slate" ? data.dark : data.light);

// A link holds the scenario: deflated JSON in the fragment, which no server sees.

async function through(stream, bytes) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

async function link() {
  const text = JSON.stringify({ scenario: editor.value, seed: seed.value });
  const packed = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(text));
  const letters = btoa(Array.from(packed, (byte) => String.fromCharCode(byte)).join(""));
  return `${location.href.split("#")[0]}#${letters.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

async function fromLink() {
  const letters = location.hash.slice(1).replaceAll("-", "+").replaceAll("_", "/");
  if (!letters) return false;
  try {
    const packed = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
    const found = JSON.parse(new TextDecoder().decode(await through(new DecompressionStream("deflate-raw"), packed)));
    [editor.value, seed.value] = [String(found.scenario), String(found.seed)];
    return true;
  } catch {
    status.textContent = "the link holds no scenario";
    return false;
  }
}

// Runs.

async function files() {
  const named = data.traces.filter((name) => editor.value.includes(name) && !opened.has(name));
  const fetched = await Promise.all(named.map(async (name) => [name, await (await fetch(at(name))).text()]));
  return Object.fromEntries([...fetched, ...opened]);
}

async function run() {
  if (running) return;
  running = true;
  find(".run").disabled = true;
  status.textContent = "running";
  const request = { scenario: editor.value, files: await files() };
  if (seed.value !== "") request.seed = Number(seed.value);
  worker.postMessage({ kind: "fly", request });
}

worker.onmessage = ({ data: message }) => {
  if (message.kind === "progress") {
    status.textContent = `${message.seconds.toFixed(0)} s simulated`;
    return;
  }
  if (message.kind === "table") {
    const address = URL.createObjectURL(new Blob(message.parts, { type: "text/csv" }));
    Object.assign(document.createElement("a"), { href: address, download: "messages.csv" }).click();
    URL.revokeObjectURL(address);
    return;
  }
  running = false;
  find(".run").disabled = false;
  answer = message.answer;
  status.textContent = answer.error
    ? ""
    : `${answer.duration_s.toFixed(0)} s in ${message.wall_s.toFixed(2)} s: ${count(Math.round(answer.duration_s / message.wall_s))} × real time`;
  show();
};
worker.onerror = (error) => { status.textContent = `the simulator cannot be loaded: ${error.message}`; };

// What came out.

function cards() {
  return answer.flows.flatMap((flow) => flow.requirements.map((requirement) => {
    const look = { met: "yes", "not met": "no" }[requirement.verdict] ?? "";
    return `<div class="card ${look}"><b>${html(flow.flow)}: ${requirement.verdict ?? "not judged here"}</b>${html(sentence(requirement))}</div>`;
  })).join("");
}

function table() {
  const rows = answer.flows.map((flow) => {
    const won = flow.won.map(([path, share]) => `${html(path)} ${percent(share)}`).join(", ");
    const { p50, p99, max } = flow.delay_ms;
    return `<tr><td>${html(flow.flow)}</td><td>${count(flow.sent)}</td><td>${count(flow.delivered)}</td><td>${rate(flow.goodput_bps)}</td>
      <td>${ms(p50)}</td><td>${ms(p99)}</td><td>${ms(max)}</td><td>${won}</td></tr>`;
  });
  const heads = ["flow", "written", "delivered", "goodput", "delay p50", "p99", "max", "delivered first by"];
  return `<div class="scroll"><table><thead><tr>${heads.map((head) => `<th>${head}</th>`).join("")}</tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
}

function charts(place) {
  const palette = colours();
  const paths = [...new Set(answer.links.map((link) => link.path))];
  const of_path = (path) => palette[paths.indexOf(path) % 7];
  const add = (title, keys, settings) => {
    const box = document.createElement("section");
    const key = keys.map(([colour, text]) => `<span><i style="background:${colour}"></i>${html(text)}</span>`).join("");
    box.innerHTML = `<h3>${html(title)}</h3><p class="key">${key}</p><div></div>`;
    place.append(box);
    draw(box.lastElementChild, { duration_s: answer.duration_s, label: title, ...settings });
  };
  for (const flow of answer.flows.filter((flow) => flow.delivered)) {
    const bad = getComputedStyle(root).getPropertyValue("--bad");
    const missed = flow.chart.missed.reduce((sum, number) => sum + number, 0);
    const what = flow.deadline_ms === null ? "never delivered" : `later than ${ms(flow.deadline_ms)} or never`;
    add(`${flow.flow}: one-way delay in ms`, [[palette[0], "median"], [palette[4], "longest"], ...(missed ? [[bad, `${count(missed)} ${what}`]] : [])], {
      logarithmic: true,
      lines: [{ values: flow.chart.max_ms, colour: palette[4], width: 1 }, { values: flow.chart.median_ms, colour: palette[0], width: 2 }],
      marks: missed ? { counts: flow.chart.missed, colour: bad } : undefined,
      level: flow.deadline_ms === null ? undefined : { value: flow.deadline_ms, text: `deadline ${ms(flow.deadline_ms)}` },
    });
  }
  for (const direction of ["uplink", "downlink"]) {
    const links = answer.links.filter((link) => link.direction === direction);
    if (!links.some((link) => link.delivered_bps.some((bps) => bps > 0))) continue;
    const down = links.filter((link) => link.down.some((share) => share > 0));
    add(`Traffic by path, ${direction}, in Mbit/s`, [...links.map((link) => [of_path(link.path), link.path]), ...(down.length ? [["#8886", "shaded: path down"]] : [])], {
      logarithmic: false,
      lines: links.map((link) => ({ values: link.delivered_bps.map((bps) => bps / 1e6), colour: of_path(link.path) })),
      bands: down.map((link) => ({ shares: link.down, colour: of_path(link.path) })),
    });
  }
}

function show() {
  if (!answer) return;
  if (answer.error) {
    result.innerHTML = `<pre class="error">${html(answer.error)}</pre>`;
    return;
  }
  const warnings = answer.warnings.map((warning) => `<p>Note: ${html(warning)}</p>`).join("");
  const bugs = answer.bugs ? `<p class="error">${answer.bugs} internal errors: please report this scenario.</p>` : "";
  result.innerHTML = `<div class="cards">${cards()}</div>${bugs}${warnings}${table()}
    <div class="bar"><button class="save">Save the table of messages (CSV)</button></div>`;
  find(".save").onclick = ({ target }) => { target.disabled = true; worker.postMessage({ kind: "table" }); };
  charts(result);
}

// Completion.

let chosen = 0;

function suggest() {
  const before = editor.value.slice(0, editor.selectionStart);
  const { word, options: found } = complete(data.schema, before);
  const typed = /[\w".]$/.test(before);
  options.hidden = !found.length || !typed;
  if (options.hidden) return;
  chosen = 0;
  options.replaceChildren(...found.map(([text, meaning]) => {
    const item = document.createElement("li");
    item.role = "option";
    item.innerHTML = `${html(text)}<small>${html(meaning)}</small>`;
    item.onmousedown = (event) => { event.preventDefault(); accept(word, text); };
    return item;
  }));
  mark();
  const style = getComputedStyle(editor);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const lines = before.split("\n");
  const column = lines.at(-1).length - word.length;
  options.style.top = `${(lines.length + 0.4) * parseFloat(style.lineHeight) + 8 - editor.scrollTop}px`;
  options.style.left = `${Math.max(Math.min(column * pen.measureText("0").width + 8 - editor.scrollLeft, editor.clientWidth - 160), 0)}px`;
  options.dataset.word = word;
}

function mark() {
  [...options.children].forEach((item, index) => item.setAttribute("aria-selected", index === chosen));
  options.children[chosen]?.scrollIntoView({ block: "nearest" });
}

function accept(word, text) {
  const end = editor.selectionStart;
  editor.setRangeText(text, end - word.length, end, "end");
  options.hidden = true;
}

editor.onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); return; }
  if (options.hidden) return;
  const moves = { ArrowDown: 1, ArrowUp: -1 };
  if (event.key in moves) {
    chosen = (chosen + moves[event.key] + options.children.length) % options.children.length;
    mark();
  } else if (event.key === "Tab" || event.key === "Enter") {
    accept(options.dataset.word, options.children[chosen].firstChild.textContent);
  } else if (event.key === "Escape") {
    options.hidden = true;
  } else return;
  event.preventDefault();
};
editor.oninput = suggest;
editor.onblur = editor.onscroll = () => { options.hidden = true; };

// The bar.

for (const name of Object.keys(data.starts)) start.append(new Option(name, name));
start.onchange = () => { editor.value = data.starts[start.value]; };
find(".run").onclick = run;
find(".share").onclick = async () => {
  const address = await link();
  history.replaceState(null, "", address);
  try {
    await navigator.clipboard.writeText(address);
    status.textContent = opened.size ? "link copied; it holds the scenario, not the files that you opened" : "link copied";
  } catch {
    status.textContent = "the address of this page is the link";
  }
};
find(".file input").onchange = async ({ target }) => {
  for (const file of target.files) opened.set(file.name, await file.text());
  const rows = [...opened].map(([name, text]) => `${name}: ${text.slice(0, text.search(/\r?\n|$/))}`);
  find(".files").textContent = `opened: ${rows.join(" · ")}`;
};
const redraw = () => { if (answer && !answer.error) { result.querySelectorAll("section").forEach((one) => one.remove()); charts(result); } };
let waiting;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redraw, 150); });
new MutationObserver(redraw).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });

if (!(await fromLink())) editor.value = data.starts[start.value];
root.dataset.ready = "yes";
