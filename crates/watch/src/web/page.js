"use strict";
// Draws what /data.json says, once a second. Text reaches the page as text nodes only.

const SVG = "http://www.w3.org/2000/svg";
const MOST_POINTS = 2000;
const WIDTH = 600, HEIGHT = 140, LEFT = 4, BOTTOM = 16;
const series = new Map();
let since = null;

// Control characters, and those that turn writing round, are replaced as on the terminal.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const printable = (text) => text.replace(HIDDEN, "\ufffd");

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null).map((child) => (child instanceof Node ? child : printable(String(child)))));
  return made;
}

function drawn(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

function bytes(count) {
  if (count === null || count === undefined) return "–";
  const gib = count / 2 ** 30;
  return gib >= 10 ? `${gib.toFixed(1)} GiB` : `${Math.floor(count / 2 ** 20)} MiB`;
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

const shown = (value, unit) => (value === null || value === undefined ? "–" : `${value}${unit}`);

// Adds new points, and forgets series that are not told of any more.
function remember(told) {
  for (const key of series.keys()) if (!(key in told)) series.delete(key);
  for (const [key, points] of Object.entries(told)) {
    const known = series.get(key) ?? [];
    const last = known.length ? known[known.length - 1][0] : -Infinity;
    known.push(...points.filter((point) => point[0] > last));
    series.set(key, known.length > MOST_POINTS ? thin(known) : known);
    for (const point of points) if (since === null || point[0] > since) since = point[0];
  }
}

// Every second point, the higher of two.
function thin(points) {
  const kept = [];
  for (let i = 0; i + 1 < points.length; i += 2) kept.push(points[i][1] >= points[i + 1][1] ? points[i] : points[i + 1]);
  return kept;
}

function path(points, x, y) {
  return points.map((point, i) => `${i ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("");
}

function plot(device, id, predicted) {
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + BOTTOM}`, preserveAspectRatio: "none", role: "img" });
  const own = series.get(id) ?? [];
  const processes = (device.processes ?? []).map((process, i) => [series.get(`${id} ${process.pid}`) ?? [], i % 8]);
  const all = [own, ...processes.map((each) => each[0])].filter((points) => points.length > 0);
  if (all.length === 0) return null;
  const began = Math.min(...all.map((points) => points[0][0]));
  const ended = Math.max(began + 1, ...all.map((points) => points[points.length - 1][0]));
  let most = predicted ?? 0;
  for (const points of all) for (const point of points) most = Math.max(most, point[1]);
  const top = most * 1.08 || device.memory_total_bytes || 1;
  const x = (time) => LEFT + ((time - began) / (ended - began)) * (WIDTH - LEFT);
  const y = (count) => HEIGHT - (count / top) * HEIGHT;
  svg.setAttribute("aria-label", `memory of ${device.label}, ${bytes(device.memory_used_bytes)} now`);
  svg.append(drawn("line", { class: "axis", x1: LEFT, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }));
  for (const [points, colour] of processes) {
    if (points.length) svg.append(drawn("path", { class: `series c${colour}`, d: path(points, x, y) }));
  }
  svg.append(drawn("path", { class: "series device", d: path(own, x, y) }));
  if (predicted) svg.append(drawn("line", { class: "predicted", x1: LEFT, x2: WIDTH, y1: y(predicted), y2: y(predicted) }));
  // As text beside the drawing: what is stretched with it cannot be read.
  const box = element("div", { class: "plot" },
    element("div", { class: "scale" }, ...[top, top / 2, 0].map((count) => element("span", {}, bytes(count)))),
    element("div", {}, svg, element("div", { class: "scale" },
      ...[`${duration(ended - began)} ago`, "now"].map((time) => element("span", {}, time)))));
  const labels = element("div", { class: "figures" },
    element("span", {}, element("i", { class: "device" }), " memory of the GPU in use; the colours are those of the processes below"));
  if (predicted) labels.append(element("span", {}, "- - predicted ", element("b", {}, bytes(predicted))));
  return element("div", {}, box, labels);
}

function predictedOn(device) {
  const of = (device.processes ?? []).map((process) => process.predicted_peak_bytes).filter((peak) => peak);
  return of.length ? of.reduce((sum, peak) => sum + peak, 0) : null;
}

function bar(device) {
  const [used, total] = [device.memory_used_bytes, device.memory_total_bytes];
  if (used === null || !total) return null;
  const ratio = used / total;
  const level = ratio >= 0.95 ? "high" : ratio >= 0.8 ? "middle" : "low";
  const full = element("div");
  full.style.width = `${(100 * ratio).toFixed(1)}%`;
  const label = `${Math.round(100 * ratio)} % of memory in use`;
  return element("div", { class: `bar ${level}`, role: "img", "aria-label": label }, full);
}

function figures(device) {
  const memory = device.memory_used_bytes === null
    ? element("b", {}, `memory: ${(device.absent.memory ?? "not supported").replaceAll("_", " ")}`)
    : element("span", {}, element("b", {}, bytes(device.memory_used_bytes)), ` of ${bytes(device.memory_total_bytes)}`);
  const power = device.power_watts === null ? "–" : `${Math.round(device.power_watts)} W`;
  const row = element("div", { class: "figures" }, memory,
    element("span", {}, `busy ${shown(device.utilization_percent, " %")}`),
    element("span", {}, shown(device.temperature_celsius, " °C")), element("span", {}, power));
  if (device.seconds_to_full !== null) {
    const rate = bytes(device.memory_trend_bytes_per_second * 60);
    row.append(element("b", {}, `+${rate}/min, full in ${duration(device.seconds_to_full)}`));
  }
  return row;
}

function processLine(process, i) {
  const who = [process.user, process.job, process.node ?? (process.rank === null ? null : `rank ${process.rank}`),
    process.container ? `container ${process.container}` : null].filter((part) => part).join(" · ");
  const command = process.command ?? process.name ?? "a process";
  const line = element("li", {}, element("i", { class: `c${i % 8}` }),
    element("b", {}, bytes(process.memory_used_bytes)), element("span", {}, command));
  const parts = [`pid ${process.pid}${process.pid_namespace === "host" ? " (of the host)" : ""}`, who];
  if (process.sm_percent !== null) parts.push(`SM ${process.sm_percent} %`);
  if (process.memory_trend_bytes_per_second) parts.push(`+${bytes(process.memory_trend_bytes_per_second * 60)}/min`);
  if (process.predicted_peak_bytes) parts.push(`predicted ${bytes(process.predicted_peak_bytes)}`);
  line.append(element("small", {}, parts.filter((part) => part).join(" · ")));
  return line;
}

function card(device, parent) {
  const id = device.uuid ?? (parent ? `gpu-${parent.index}-mig-${device.index}` : `gpu-${device.index}`);
  const title = element("h2", {}, `${device.label} ${device.name ?? ""}`);
  const made = element("section", parent ? { class: "instance" } : {}, title, figures(device), bar(device),
    plot(device, id, predictedOn(device)));
  if (device.processes === null && device.absent.processes) {
    made.append(element("p", {}, `processes: ${device.absent.processes.replaceAll("_", " ")}`));
  }
  if (device.processes?.length) made.append(element("ul", { class: "processes" }, ...device.processes.map(processLine)));
  return made;
}

// Which run of a suite is where, and what is next.
function suite(told) {
  const all = told.succeeded + told.failed + told.running.length + told.queued + told.unknown + told.waiting;
  const counts = [[told.failed, "failed"], [told.running.length, "running"], [told.queued, "in the queue"],
    [told.unknown, "not known"], [told.waiting, "waiting"]];
  let head = `${told.succeeded} of ${all} done`;
  for (const [count, word] of counts) if (count > 0) head += `, ${count} ${word}`;
  if (told.seconds_left !== null) head += `, about ${duration(told.seconds_left)} left`;
  const isElsewhere = told.queued + told.unknown > 0 || told.running.some((run) => run.nodes !== null);
  if (told.paused !== null) head += `; paused: ${told.paused}`;
  else if (!told.is_run && !isElsewhere) head += "; no runner";
  if (told.silence !== null) head += `; SLURM does not answer: ${told.silence}`;
  const place = (run) => run.nodes !== null ? `${run.nodes}: ` : run.gpus.length ? `GPU ${run.gpus.join(",")}: ` : "";
  const since = (run) => (run.seconds === null ? "" : ` for ${duration(run.seconds)}`);
  const named = (run) => (run.nodes === null ? run.run : `job ${run.run}`);
  const lines = told.running.slice(0, 16).map((run) =>
    element("small", {}, `${place(run)}${run.name}${since(run)} (${named(run)})`));
  if (told.running.length > 16) lines.push(element("small", {}, `and ${told.running.length - 16} more`));
  if (told.next.length) lines.push(element("small", {}, `next: ${told.next.join("; ")}`));
  return element("li", {}, element("b", {}, `suite ${told.suite}: `), head, ...lines);
}

function draw(data) {
  const about = [`driver ${data.driver ?? "–"}`, `CUDA ${data.cuda ?? "–"}`, new Date(data.time * 1000).toLocaleTimeString()];
  if (data.prediction) about.push(`${data.prediction.job}: ${bytes(data.prediction.peak_bytes)} predicted`);
  if (data.problem) about.push(`GPUs cannot be counted: ${data.problem}`);
  const line = document.getElementById("about");
  line.className = "";
  line.textContent = printable(about.join(" · "));
  document.getElementById("alerts").replaceChildren(...data.alerts.map((alert) =>
    element("li", {}, alert.text, element("small", {}, alert.advice))));
  document.getElementById("suites").replaceChildren(...data.suites.map(suite));
  const cards = data.devices.flatMap((device) => [card(device, null), ...device.instances.map((each) => card(each, device))]);
  document.getElementById("devices").replaceChildren(...cards);
}

async function turn() {
  try {
    const answer = await fetch(since === null ? "data.json" : `data.json?since=${since}`);
    const data = await answer.json();
    remember(data.series);
    draw(data);
  } catch (error) {
    const line = document.getElementById("about");
    line.className = "stale";
    line.textContent = `no answer from tonnage watch: ${error.message}`;
  }
  setTimeout(turn, document.hidden ? 5000 : 1000);
}

turn();
