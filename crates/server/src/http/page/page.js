"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const PATH = "/v2/rerank";
/** The port of gRPC unless the server's configuration names another one. */
const GRPC_PORT = 50051;
/** Below this probability that a passage outranks the next one, the page calls both nearly tied. */
const TIE = 0.6;
/** Longer passages are folded after about this many characters. */
const SHOWN = 200;
/** Most passages of a listed order. */
const LISTED = 20;

/** An element with attributes and children. Texts never become markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function passages() {
  const text = at("passages").value.trim();
  const parts = /\n\s*\n/.test(text) ? text.split(/\n\s*\n/) : text.split("\n");
  return parts.map((part) => part.trim()).filter((part) => part);
}

function counted(number, one) {
  return `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;
}

/** The request as it is in the form. */
function request() {
  const body = { query: at("query").value.trim(), documents: passages(), rerankd_details: true };
  const method = at("method").value;
  return method ? { ...body, rerankd_method: method } : body;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const SNIPPETS = {
  curl: (body) =>
    `curl ${location.origin}${PATH} -H 'content-type: application/json' -d ${quoted(JSON.stringify(body, null, 2))}\n`,
  python: (body) => {
    const value = JSON.stringify(body, null, 4).replace('"rerankd_details": true', '"rerankd_details": True');
    return (
      `import requests\n\nresponse = requests.post("${location.origin}${PATH}", json=${value})\n` +
      `response.raise_for_status()\nfor result in response.json()["results"]:\n` +
      `    print(result["index"], result["relevance_score"])\n`
    );
  },
  grpc: (body) => {
    const message = { query: body.query, passages: body.documents.map((text, index) => ({ id: String(index), text })) };
    if (body.rerankd_method) message.method = `METHOD_${body.rerankd_method.toUpperCase().replaceAll("-", "_")}`;
    const plain = location.protocol === "https:" ? "" : "-plaintext ";
    const address = `${location.hostname}:${GRPC_PORT}`;
    return `grpcurl ${plain}-d ${quoted(JSON.stringify(message, null, 2))} ${address} rerankd.v1.RerankService/Rerank\n`;
  },
};

function language() {
  return document.querySelector('input[name="language"]:checked').value;
}

function showForm() {
  const body = request();
  at("count").textContent = counted(body.documents.length, "passage");
  at("snippet").textContent = SNIPPETS[language()](body);
  at("remark").textContent = language() === "grpc" ? `${GRPC_PORT} is the default port of gRPC; server.listen sets it.` : "";
  const shown = data.methods.find((method) => method.name === at("method").value) ?? data.methods[0];
  at("summary").textContent = `${shown.summary[0].toUpperCase()}${shown.summary.slice(1)}.`;
}

function fail(message, field) {
  at("status").textContent = "";
  at("error").replaceChildren(message);
  for (const id of ["query", "passages"]) {
    if (id === field) at(id).setAttribute("aria-invalid", "true");
    else at(id).removeAttribute("aria-invalid");
  }
  if (field) at(field).focus();
}

/** The text of an error's answer. */
async function problem(response) {
  const text = await response.text();
  let message = text;
  try {
    message = JSON.parse(text).message ?? text;
  } catch {
    // A proxy in front of the server may answer with another format.
  }
  const retry = response.headers.get("retry-after");
  const hints = {
    401: " The page cannot send a token: use the request as code, and add the token to it.",
    403: " Open this page at an IP address or at localhost.",
    429: retry ? ` Try again in ${counted(Number(retry), "second")}.` : "",
  };
  return `${message.slice(0, 500) || "The server refused the request"} (HTTP ${response.status}).${hints[response.status] ?? ""}`;
}

let isRunning = false;

async function rank(event) {
  event.preventDefault();
  if (isRunning) return;
  fail("");
  const body = request();
  if (!body.query) return fail("Enter a query.", "query");
  if (!body.documents.length) return fail("Enter passages, or load the example.", "passages");
  isRunning = true;
  at("rank").setAttribute("aria-disabled", "true");
  at("result").setAttribute("aria-busy", "true");
  at("status").textContent = `Ranking ${counted(body.documents.length, "passage")} …`;
  try {
    const headers = { "content-type": "application/json" };
    const response = await fetch(PATH, { method: "POST", headers, body: JSON.stringify(body) });
    if (response.ok) show(body, await response.json(), response.headers);
    else fail(await problem(response));
  } catch (error) {
    fail(`The server does not answer: ${error.message}.`);
  } finally {
    isRunning = false;
    at("rank").removeAttribute("aria-disabled");
    at("result").removeAttribute("aria-busy");
  }
}

const fixed = (number, digits) => number.toFixed(digits).replace("-", "−");
const signed = (number) => (number >= 0 ? "+" : "") + fixed(number, 2);

function milliseconds(text) {
  const value = Number(text);
  return value < 1000 ? `${value} ms` : `${(value / 1000).toFixed(1)} s`;
}

/** A bar of a share of its width. Its number stands beside it, so screen readers skip it. */
function bar(share) {
  const filled = element("div");
  filled.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return element("div", { class: "bar", "aria-hidden": "true" }, filled);
}

/** A bar to the right of the middle, or to its left if the value is negative. */
function signedBar(value, largest) {
  const filled = element("div", value < 0 ? { class: "less" } : {});
  const width = (Math.abs(value) / (largest || 1)) * 50;
  filled.style.width = `${width}%`;
  filled.style.left = `${value < 0 ? 50 - width : 50}%`;
  return element("div", { class: "signed", "aria-hidden": "true" }, filled);
}

/** The contributions to a place, the largest first. */
function contributions(result) {
  const { model, embedding, source } = result.signals ?? {};
  const asked = result.stage === "STAGE_TOGETHER" ? "model in orders" : "model";
  const known = [[asked, model], ["embedding", embedding], ["BM25", source]];
  return known.filter(([, value]) => value !== undefined).sort((one, other) => other[1] - one[1]);
}

/** A text; if it is long, its rest is folded. */
function folded(text) {
  if (text.length <= SHOWN * 1.3) return [text];
  const end = text.lastIndexOf(" ", SHOWN);
  const cut = end > SHOWN / 2 ? end : SHOWN;
  return [element("details", {}, element("summary", {}, `${text.slice(0, cut)} …`), `… ${text.slice(cut).trim()}`)];
}

function isTied(result) {
  const probability = result.outranks_next;
  return probability !== undefined && probability < TIE;
}

function columns(answer) {
  const some = (test) => answer.results.some(test);
  const largest = Math.max(...answer.results.flatMap((one) => contributions(one).map(([, value]) => Math.abs(value))), 0);
  const score = (result) => {
    const error = result.standard_error === undefined ? "" : ` ± ${fixed(result.standard_error, 2)}`;
    const utility = element("div", { class: "hint" }, `utility ${fixed(result.utility, 2)}${error}`);
    const parts = [fixed(result.relevance_score, 3), bar(result.relevance_score), utility];
    if (isTied(result)) parts.push(element("span", { class: "tie" }, "near tie with the next"));
    return parts;
  };
  const part = ([name, value]) =>
    element("div", { class: "part" }, element("span", {}, name), element("span", {}, signed(value)), signedBar(value, largest));
  const parts = (result) => {
    const known = contributions(result).map(part);
    return known.length ? known : [result.stage === "STAGE_RETRIEVER" ? "not read by the model" : "model alone"];
  };
  const passage = (result, documents) => {
    const cut = result.tokens_cut ? `\n(${counted(result.tokens_cut, "token")} cut)` : "";
    return [...folded(documents[result.index]), cut];
  };
  return [
    { name: "Rank", kind: "place number", of: (result, documents, rank) => [String(rank + 1)] },
    { name: "Was", kind: "was number", of: (result) => [String(result.index + 1)] },
    { name: answer.meta.score_calibrated ? "P(relevant)" : "Score", kind: "score number", of: score },
    some((result) => contributions(result).length) && { name: "Contributions", kind: "parts", of: parts },
    { name: "Passage", kind: "passage", of: passage },
  ].filter(Boolean);
}

/** The order of the passages for the prompt. */
function order(answer) {
  const indices = answer.meta.context_order ?? [];
  const ranked = answer.results.map((result) => result.index).filter((index) => indices.includes(index));
  if (indices.join() === ranked.join()) return indices.length && "the ranking";
  return indices.slice(0, LISTED).map((index) => index + 1).join(", ") + (indices.length > LISTED ? ", …" : "");
}

function facts(answer, headers) {
  const time = (name) => headers.get(name) && milliseconds(headers.get(name));
  const phases = [["queue", "x-queue-time"], ["tokenising", "x-tokenization-time"], ["models", "x-inference-time"]]
    .map(([name, header]) => [name, time(header)])
    .filter(([, value]) => value)
    .map(([name, value]) => `${name} ${value}`);
  const total = time("x-total-time");
  const cached = answer.meta.cached_tokens;
  return [
    ["Time", total && (phases.length ? `${total} (${phases.join(", ")})` : total)],
    ["Tokens", `${answer.usage.total_tokens.toLocaleString("en")}${cached ? `, ${cached.toLocaleString("en")} of them cached` : ""}`],
    ["Model", answer.model],
    ["Best order in the prompt", order(answer)],
  ].filter(([, value]) => value);
}

function notes(answer) {
  const { none_relevant: none, none_helps: noneHelps, warnings } = answer.meta;
  const found = [...warnings];
  if (typeof none === "number") found.unshift(`Probability that no passage is relevant: ${fixed(none, 2)}.`);
  else if (noneHelps) found.unshift("No passage is better than none.");
  const ties = answer.results.filter(isTied).length;
  if (ties) found.push(`${counted(ties, "near tie")}: the order of two passages is nearly a coin toss.`);
  return found;
}

function bias(weights) {
  const largest = Math.max(...weights);
  const position = (weight, index) =>
    element("li", {}, element("span", {}, `position ${index + 1}`), element("span", {}, fixed(weight, 3)), bar(weight / largest));
  const heading = element("h3", {}, `Position bias in prompts of ${counted(weights.length, "passage")}`);
  return [heading, element("ol", {}, ...weights.map(position))];
}

function show(body, answer, headers) {
  const shown = columns(answer);
  const head = shown.map(({ name }) => element("th", { role: "columnheader", scope: "col" }, name));
  const rows = answer.results.map((result, rank) => {
    const cells = shown.map(({ kind, of }) =>
      element("td", { role: "cell", class: kind }, ...of(result, body.documents, rank)));
    return element("tr", { role: "row" }, ...cells);
  });
  at("table").tHead.replaceChildren(element("tr", { role: "row" }, ...head));
  at("table").tBodies[0].replaceChildren(...rows);
  const found = facts(answer, headers);
  at("facts").replaceChildren(...found.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  at("notes").replaceChildren(...notes(answer).map((note) => element("li", {}, note)));
  const mixed = answer.results.some((result) => contributions(result).length);
  at("legend").textContent = mixed ? "Contributions are the parts of the mixed score that decides the rank." : "";
  const fits = (answer.meta.position_bias ?? []).filter((weights) => weights.length > 1);
  at("bias").replaceChildren(...fits.flatMap(bias));
  at("result").hidden = false;
  const took = found.find(([name]) => name === "Time")?.[1].split(" (")[0];
  const best = answer.results.length ? ` Passage ${answer.results[0].index + 1} is the best.` : "";
  at("status").textContent = `Ranked ${counted(body.documents.length, "passage")}${took ? ` in ${took}` : ""}.${best}`;
  if (at("result").getBoundingClientRect().top > innerHeight) at("result").scrollIntoView();
}

async function copy() {
  const text = at("snippet").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers have no clipboard for pages without TLS, except at localhost.
    getSelection().selectAllChildren(at("snippet"));
    document.execCommand("copy");
  }
  at("copy").textContent = "Copied";
  at("status").textContent = "The request was copied.";
  setTimeout(() => (at("copy").textContent = "Copy"), 2000);
}

function start() {
  const [first, ...others] = data.methods;
  const option = (value, text) => element("option", { value }, text);
  at("method").append(option("", `${first.name} (default)`), ...others.map(({ name }) => option(name, name)));
  at("version").textContent = `Version ${data.version}.`;
  at("form").addEventListener("submit", rank);
  at("form").addEventListener("input", showForm);
  document.querySelectorAll('input[name="language"]').forEach((one) => one.addEventListener("change", showForm));
  at("copy").addEventListener("click", copy);
  at("example").addEventListener("click", () => {
    at("query").value = data.query;
    at("passages").value = data.passages.join("\n\n");
    fail("");
    showForm();
    at("status").textContent = "The example is loaded.";
  });
  showForm();
}

start();
