// The page: asks the server that it came from, and shows what the gate says. Texts are only ever set as text.
"use strict";

const TARGETS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3];
const EXAMPLES = {
  supported: {
    answer: "The Loire is the longest river in France.",
    evidence: "The Seine rises in Burgundy, flows through Paris and Rouen, and ends in the English Channel.\n\nThe Loire is the longest river in France. It flows through Orléans and Nantes and ends in the Atlantic.",
  },
  near: {
    answer: "The Seine is the longest river in France.",
    evidence: "The Seine rises in Burgundy, flows through Paris and Rouen, and ends in the English Channel.\n\nThe Loire is the longest river in France. It flows through Orléans and Nantes and ends in the Atlantic.",
  },
  long: {
    h_star: 0.2, // for all of an answer together, the usual 5% lets little out
    question: "Who was Marie Curie?",
    answer: "Marie Curie was born in Warsaw in 1867. She won the Nobel Prize in Physics in 1903. Her husband Pierre Curie was born in Lyon. She had a dog called Max.",
    evidence: "Marie Curie was born in Warsaw in 1867. She won the Nobel Prize in Physics in 1903 and the Nobel Prize in Chemistry in 1911.\n\nPierre Curie, the husband of Marie Curie, was born in Paris in 1859. He studied magnetism and crystals before he worked on radioactivity.",
  },
  enough: {
    question: "Which Nobel Prize did Marie Curie win in 1911?",
    evidence: "Marie Curie won the Nobel Prize in Chemistry in 1911.\n\nPierre Curie was born in Paris in 1859.",
  },
};
const VERDICTS = {
  supported: ["supported", "yes"],
  refuted: ["refuted", "no"],
  not_enough: ["not enough information", "doubt"],
  not_judged: ["not judged", "faint"],
};

const $ = (id) => document.getElementById(id);
let files = []; // {name, chunks}
let limits = null;
let usual = 0.05; // the server's own h*
let running = null; // an AbortController
let shown = null; // what the result shows, to be saved

// ---- building what is shown ---------------------------------------------------------------------------------

function make(name, attributes, ...content) {
  const svg = ["svg", "line", "circle", "path", "rect", "text"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...content.filter((one) => one !== null && one !== undefined));
  return made;
}

const percent = (value, digits = 0) => {
  const unit = 10 ** (digits + 2);
  return `${(Math.floor(value * unit + 1e-9) / (unit / 100)).toFixed(digits)}%`; // never rounded up
};
const passages = (count) => `${count} passage${count === 1 ? "" : "s"}`;
const nats = (value) => (value === null ? "none" : value.toPrecision(3));

function badge(action) {
  const words = { answer: "ANSWER", abstain: "ABSTAIN", acquire: "ACQUIRE", trim: "TRIM" };
  return make("span", { class: `badge ${action === "answer" ? "yes" : action === "trim" ? "doubt" : "no"}` }, words[action]);
}

function orders(decision) {
  // The model over the orders of the passages, beside what is trusted and what is needed.
  if (!decision.q.length) return null;
  const width = 360, x = (p) => 10 + (width - 20) * p, colour = decision.action === "answer" ? "yes" : "no";
  const needed = 1 - decision.settings.h_star;
  const said = decision.settings.layout !== "full"
    ? `The model gives ${percent(decision.q_bar, 1)} in every order, by construction`
    : `The model gives between ${percent(decision.q_lo, 1)} and ${percent(Math.max(...decision.q), 1)} over ${decision.q.length} orders`;
  const trusted = decision.p_ref === null ? "" : `; ${percent(decision.p_ref, 1)} is trusted`;
  const alone = decision.q_alone.length ? `, and at most ${percent(Math.max(...decision.q_alone), 1)} to a passage read alone` : "";
  const words = `${said}${alone}${trusted}; ${percent(needed, 1)} is needed.`;
  const svg = make("svg", { viewBox: `0 0 ${width} 62`, role: "img", "aria-label": words, class: colour });
  svg.append(make("line", { x1: x(0), x2: x(1), y1: 26, y2: 26, class: "axis" }));
  svg.append(make("line", { x1: x(needed), x2: x(needed), y1: 4, y2: 42, class: "needed" }));
  if (decision.p_ref !== null) svg.append(make("path", { d: `M${x(decision.p_ref)} 20 l-6 -11 h12 z`, class: "trusted" }));
  for (const q of decision.q) svg.append(make("circle", { cx: x(q), cy: 26, r: 5, class: "dot" }));
  svg.append(make("text", { x: x(0), y: 56 }, "0: no"));
  svg.append(make("text", { x: x(needed), y: 56, "text-anchor": needed > 0.9 ? "end" : "middle" }, "needed"));
  return make("figure", {}, svg, make("figcaption", { class: "faint" }, "▾ trusted, ● the model in each order. ", words));
}

function budget(decision) {
  // The information that the passages bring, against the bits to trust.
  if (decision.budget === null || decision.bits_to_trust === null) return null;
  const most = Math.max(decision.budget, decision.bits_to_trust, 1e-9), width = 360;
  const ratio = decision.isr === "inf" ? "infinite" : Number(decision.isr).toPrecision(3);
  const words = `Budget ${nats(decision.budget)} nats, bits to trust ${nats(decision.bits_to_trust)} nats: ISR ${ratio}.`;
  const svg = make("svg", { viewBox: `0 0 ${width} 50`, role: "img", "aria-label": words });
  const rows = [["budget", decision.budget, decision.isr === "inf" || decision.isr >= 1 ? "yes" : "no"], ["to trust", decision.bits_to_trust, "faint"]];
  rows.forEach(([name, value, colour], i) => {
    svg.append(make("text", { x: 0, y: 16 + 24 * i }, name));
    svg.append(make("rect", { x: 70, y: 5 + 24 * i, width: 285, height: 14, class: "bar rest" }));
    svg.append(make("rect", { x: 70, y: 5 + 24 * i, width: Math.max(2, (285 * value) / most), height: 14, class: `bar ${colour}` }));
  });
  return make("figure", {}, svg, make("figcaption", { class: "faint" }, words, " At 1 or more the information suffices, where p_ref reaches the target too."));
}

function verdictOf(answer) {
  const decision = answer.decision;
  return [
    make("p", {}, badge(decision.action), " ", make("code", {}, decision.reason.replaceAll("_", " "))),
    make("p", {}, answer.explanation),
    decision.left_out.length ? make("p", { class: "doubt" }, `${decision.left_out.length} of ${decision.chunks} passages were not read: they did not fit.`) : null,
    decision.focus ? make("p", { class: "faint" }, `${decision.focus.words_read} of ${decision.focus.words_total} words were read: the sentences nearest to what was asked.`) : null,
    orders(decision), budget(decision),
  ].filter(Boolean);
}

function targets(decisions) {
  const rows = decisions.map((one) => {
    const answered = one.action === "answer";
    return make("tr", {}, make("th", { scope: "row" }, percent(one.settings.h_star)), make("td", { class: answered ? "yes" : "no" }, answered ? "answers" : "abstains"), make("td", {}, one.reason.replaceAll("_", " ")));
  });
  const head = make("tr", {}, ...["h*", "the gate", "because"].map((name) => make("th", { scope: "col" }, name)));
  return make("table", { id: "targets" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

function whole(found) {
  // The answer with every statement as a button that shows its card.
  const { audit, release } = found, text = make("p", { class: "text", dir: "auto" }), card = make("div", { id: "card", class: "panel", role: "region", "aria-live": "polite", "aria-label": "Statement" });
  const letters = audit.answer, buttons = []; // spans count code points, as Python does
  const points = Array.from(letters);
  let at = 0;
  audit.statements.forEach((one, i) => {
    const [first, last] = one.span;
    if (first < at) return;
    text.append(points.slice(at, first).join(""));
    const [name] = VERDICTS[one.verdict];
    // Not a button element: those do not wrap as text does.
    const button = make("span", { role: "button", tabindex: "0", class: `statement ${one.verdict}`, "aria-pressed": "false", title: name }, points.slice(first, last).join(""), make("span", { class: "hidden" }, ` (${name})`));
    button.addEventListener("click", () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      card.replaceChildren(...statement(found, one, i));
    });
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      button.click();
    });
    buttons.push(button);
    text.append(button);
    at = last;
  });
  text.append(points.slice(at).join(""));
  card.append(make("p", { class: "faint" }, "Choose a statement to see the sentence that carries it."));
  const out = release.text ? make("blockquote", { class: "text", dir: "auto", id: "released" }, release.text) : make("p", { id: "released" }, "Nothing.");
  const left = release.left_out.map((one) => make("li", {}, one.text.slice(0, 200), make("br"), make("span", { class: "faint" }, one.reason)));
  return [
    make("h2", {}, "Statement by statement"), make("p", {}, badge(audit.action), " ", found.headline.replace(/^\w+: /, "")), text, card,
    ...(audit.statements.length > 1 ? [make("h2", {}, "What may go out"), out, make("p", { class: "faint" }, `${release.note[0].toUpperCase()}${release.note.slice(1)}.`)] : []),
    left.length && audit.statements.length > 1 ? make("details", {}, make("summary", {}, `Left out: ${left.length}`), make("ul", {}, ...left)) : null,
  ].filter(Boolean);
}

function statement(found, one, i) {
  const [name, colour] = VERDICTS[one.verdict];
  const kept = found.release.kept.includes(i) ? "goes out" : "is left out";
  const parts = [make("h3", {}, make("span", { class: `badge ${colour}` }, name), one.judged ? ` ${kept}` : ` ${one.kind.replaceAll("_", " ")}`)];
  if (one.detail) parts.push(make("p", { class: "faint" }, one.detail));
  for (const cited of one.citations) {
    const chunk = found.audit.evidence[cited.chunk], points = Array.from(chunk.text), [first, last] = cited.span;
    const around = [points.slice(Math.max(0, first - 300), first).join(""), make("mark", {}, points.slice(first, last).join("")), points.slice(last, last + 300).join("")];
    parts.push(make("blockquote", { dir: "auto" }, make("span", { class: "faint" }, `[${cited.chunk + 1}] ${chunk.title || ""} `), ...around));
  }
  const p = one.probabilities;
  if (p) parts.push(make("p", {}, `supported ${percent(p.supported, 1)}, refuted ${percent(p.refuted, 1)}, not enough ${percent(p.not_enough, 1)}`));
  if (one.prior !== null) parts.push(make("p", { class: "faint" }, `Without the cited sentences the model says ${percent(one.prior, 1)}${one.known ? ": it need not have read them" : ""}.`));
  for (const marker of one.markers) if (marker.status !== "right") parts.push(make("p", { class: "doubt" }, `marker ${marker.text || "(none)"}: ${marker.status.replaceAll("_", " ")}`));
  if (one.decision && found.audit.statements.length > 1) parts.push(...[orders(one.decision), budget(one.decision)].filter(Boolean));
  return parts;
}

// ---- asking the server --------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(message, type = "") {
    super(message);
    this.type = type;
  }
}

async function ask(path, options = {}) {
  const headers = { ...(options.headers || {}) }, key = $("key").value.trim();
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server cannot be reached.");
  }
  if (response.ok) return response;
  if (response.status === 401 || response.status === 403) {
    $("key-row").hidden = false;
    $("key").focus();
  }
  const said = await response.json().catch(() => ({}));
  throw new Refused(said.detail || `The server said ${response.status}.`, said.type);
}

const post = (path, body, accept = "application/json") =>
  ask(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", Accept: accept }, signal: running.signal });

async function audited(body) {
  // An audit, with its progress from the stream of events.
  const response = await post("v1/audit?html=true", body, "text/event-stream");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Refused("The stream ended before the audit.");
    const blocks = (kept + value).split("\n\n");
    kept = blocks.pop();
    for (const block of blocks) {
      const [, name, data] = block.match(/^event: (\w+)\ndata: (.*)$/s) || [];
      if (name === "progress") $("status").textContent = `Reading statement by statement: ${JSON.parse(data).said}`;
      if (name === "problem") throw new Refused(JSON.parse(data).detail);
      if (name === "audit") return JSON.parse(data);
    }
  }
}

function evidence() {
  const pasted = $("evidence").value.split(/\n\s*\n/).map((text) => text.trim()).filter(Boolean);
  return [...pasted, ...files.flatMap((file) => file.chunks)];
}

async function reached(h_star, decide) {
  // The decision at another h*; the server refuses one that its calibration can never reach.
  try {
    return (await decide(h_star)).decision;
  } catch (error) {
    if (error.type !== "urn:isr-rag:problem:invalid-setting") throw error;
    return { settings: { h_star }, action: "abstain", reason: "out_of_reach_of_the_calibration" };
  }
}

async function judge(event) {
  event.preventDefault();
  if (running) return;
  const question = $("question").value.trim(), answer = $("answer").value.trim(), chunks = evidence();
  problem(!question && !answer ? "Give an answer or claim, or a question." : !chunks.length ? "Give evidence: paste passages, or add files." : limits && chunks.length > limits.chunks ? `${chunks.length} passages; this server takes ${limits.chunks}. Remove some.` : "");
  if (!$("problem").hidden) return;
  running = new AbortController();
  busy(true);
  try {
    const h_star = Number($("h-star").value);
    const asked = answer ? (question ? { question, answer } : { claim: answer }) : { question };
    $("status").textContent = `Reading ${passages(chunks.length)}…`;
    const decide = async (h) => (await post("v1/decide", { ...asked, evidence: chunks, h_star: h })).json();
    const first = await decide(h_star);
    const others = [];
    for (const h of TARGETS) others.push(h === h_star ? first.decision : await reached(h, decide));
    const audit = answer ? await audited({ answer, question: question || null, evidence: chunks, h_star }) : null;
    show({ asked, evidence: chunks, first, others, audit });
    $("status").textContent = `Done: ${audit && audit.audit.statements.length > 1 ? audit.audit.action : first.decision.action}.`;
  } catch (error) {
    $("status").textContent = error.name === "AbortError" ? "Stopped." : "";
    if (error.name !== "AbortError") problem(error instanceof Refused ? error.message : `The page failed: ${error.message}`);
  } finally {
    running = null;
    busy(false);
  }
}

function show(found) {
  shown = found;
  $("empty").hidden = true;
  $("found").hidden = false;
  const title = found.audit && found.audit.audit.statements.length > 1 ? "The answer as a whole" : "The decision";
  $("verdict").replaceChildren(
    make("h2", {}, title), ...verdictOf(found.first),
    make("h3", {}, "What another h* would have answered"), targets(found.others),
  );
  $("whole").replaceChildren(...(found.audit ? whole(found.audit) : []));
  if (found.audit && found.audit.audit.statements.length > 1) $("verdict").before($("whole"));
  else $("verdict").after($("whole"));
  const one = document.querySelector(".statement");
  if (one) one.click();
  $("result").focus({ preventScroll: false });
}

function busy(now) {
  $("judge").disabled = now;
  $("stop").hidden = !now;
  $("result").setAttribute("aria-busy", String(now));
}

function problem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

// ---- files --------------------------------------------------------------------------------------------------

async function add(given) {
  for (const file of given) {
    $("status").textContent = `Reading ${file.name}…`;
    problem("");
    try {
      if (limits && file.size > limits.body) throw new Refused(`${file.name} has more than ${limits.body.toLocaleString("en")} bytes.`);
      const response = await ask(`v1/documents?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } });
      files.push({ name: file.name, chunks: (await response.json()).chunks });
    } catch (error) {
      problem(error instanceof Refused ? error.message : `${file.name}: ${error.message}`);
    }
    $("status").textContent = "";
  }
  list();
}

function list() {
  $("added").replaceChildren(...files.map((file) => {
    const remove = make("button", { type: "button", class: "link", "aria-label": `Remove ${file.name}` }, "remove");
    remove.addEventListener("click", () => {
      files = files.filter((other) => other !== file);
      list();
      $("files").focus();
    });
    return make("li", {}, make("span", {}, `${file.name}: ${passages(file.chunks.length)}`), remove);
  }));
}

// ---- saving -------------------------------------------------------------------------------------------------

function save(name, kind, content) {
  const url = URL.createObjectURL(new Blob([content], { type: kind }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function savePage() {
  if (shown.audit) return save("audit.html", "text/html", shown.audit.html);
  const css = await (await fetch("page/page.css")).text();
  const asked = make("dl", {}, ...Object.entries(shown.asked).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  const passages = make("ol", {}, ...shown.evidence.map((one) => make("li", {}, typeof one === "string" ? one : `${one.title || ""} ${one.text}`)));
  const body = make("main", {}, make("div", {}, asked, $("verdict").cloneNode(true), make("h2", {}, "Evidence"), passages));
  const head = `<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Decision of isr-rag</title><style>${css}</style>`;
  save("decision.html", "text/html", `<!doctype html>\n<html lang="en"><head>${head}</head><body>${body.outerHTML}</body></html>\n`);
}

// ---- beginning ----------------------------------------------------------------------------------------------

function tolerate(h_star) {
  const option = Array.from($("h-star").options).find((one) => Number(one.value) === h_star);
  if (option) option.selected = true;
}

async function about() {
  try {
    const told = await (await ask("v1/models")).json();
    limits = told.limits;
    const model = told.models[0];
    $("model").textContent = `${model.scorer.split("/")[0]}, isr-rag ${told.version}${model.focus ? `; reads ${model.focus} words of evidence at most` : ""}`;
    usual = model.h_star;
    tolerate(usual);
  } catch (error) {
    problem(error.message);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  $("form").addEventListener("submit", judge);
  $("form").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
  });
  $("stop").addEventListener("click", () => running && running.abort());
  $("key").addEventListener("change", about);
  $("files").addEventListener("change", async () => {
    await add($("files").files);
    $("files").value = "";
  });
  const drop = $("drop");
  for (const name of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragover");
      if (name === "drop") add(event.dataTransfer.files);
    });
  }
  $("save-html").addEventListener("click", savePage);
  $("save-json").addEventListener("click", () => {
    const { asked, evidence: chunks, first, others, audit } = shown;
    save("isr-rag.json", "application/json", JSON.stringify({ asked, evidence: chunks, decision: first.decision, targets: others, audit: audit && audit.audit, release: audit && audit.release }, null, 1));
  });
  for (const button of document.querySelectorAll("[data-example]")) {
    button.addEventListener("click", () => {
      const example = EXAMPLES[button.dataset.example];
      for (const name of ["question", "answer", "evidence"]) $(name).value = example[name] || "";
      tolerate(example.h_star || usual);
      files = [];
      list();
      $("form").requestSubmit();
    });
  }
  about();
});
