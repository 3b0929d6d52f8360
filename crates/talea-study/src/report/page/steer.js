// Mouse, keys and buttons.

for (const chart of charts) {
  chart.holder = document.createElement("div");
  chart.holder.className = "chart";
  chart.canvas = document.createElement("canvas");
  chart.canvas.tabIndex = 0;
  chart.canvas.setAttribute("role", "img");
  chart.canvas.setAttribute("aria-label", `schedule of ${chart.root.name}; the table below has the same in numbers`);
  chart.holder.append(chart.canvas);
  byId("charts").append(chart.holder);
  steer(chart);
}

function zoomBy(by, middle = (view.from + view.to) / 2) {
  show(middle - (middle - view.from) * by, middle + (view.to - middle) * by);
}

function moveBy(share) {
  const length = (view.to - view.from) * share;
  show(view.from + length, view.to + length);
}

// To the next miss after the middle of the view, or the last before it.
function jump(way) {
  const middle = (view.from + view.to) / 2, next = first(misses, (miss) => miss[0], middle + (way > 0 ? 1 : 0));
  const miss = misses[way > 0 ? next : next - 1] ?? misses[way > 0 ? 0 : misses.length - 1];
  if (!miss) return;
  const [at, row, root] = miss, most = 24 * Math.max(root.tasks[row.task].period, root.tasks[row.task].deadline, 1);
  const half = Math.min(view.to - view.from, most) / 2;
  show(at - half, at + half);
}

function steer({ root, rows, canvas, holder }) {
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return view.from + (view.to - view.from) * (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
  };
  canvas.addEventListener("wheel", (event) => {
    const here = at(event);
    // Over the names the page scrolls.
    if (here < view.from) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) moveBy((event.deltaX || event.deltaY) / 1000);
    else zoomBy(Math.exp(event.deltaY / 400), here);
  }, { passive: false });
  let held = null, marked = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.shiftKey) marked = at(event); else held = at(event);
    canvas.setPointerCapture(event.pointerId);
    byId("tip").hidden = true;
  });
  const drop = (event) => {
    const here = at(event);
    if (marked !== null && Math.abs(here - marked) > (view.to - view.from) / 200) show(Math.min(here, marked), Math.max(here, marked));
    held = marked = null;
  };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", () => { held = marked = null; });
  canvas.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
  canvas.addEventListener("pointermove", (event) => {
    const here = at(event);
    if (held !== null) return show(view.from + held - here, view.to + held - here);
    const number = Math.floor((event.clientY - holder.getBoundingClientRect().top - TOP) / ROW);
    tell(event, rows[number] && here >= view.from && here <= view.to ? about(root, rows[number], here) : "");
  });
  canvas.addEventListener("dblclick", () => show(0, data.duration));
}

function tell(event, text) {
  const tip = byId("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const [x, y] = [event.clientX + 14, event.clientY + 16];
  tip.style.left = Math.max(Math.min(x, innerWidth - (tip.offsetWidth || 0) - 8), 0) + "px";
  tip.style.top = (y + (tip.offsetHeight || 0) > innerHeight ? event.clientY - (tip.offsetHeight || 0) - 8 : y) + "px";
}

// What a row has at an instant.
function about(root, row, here) {
  const lines = [tick(here, (view.to - view.from) / 1000, view.to)];
  if (row.kind === "budget") {
    const [times, left] = row.curve, k = first(times, (at) => at, here);
    if (k === 0) return "";
    const [a, b] = [k - 1, Math.min(k, times.length - 1)];
    const share = times[b] > times[a] ? (here - times[a]) / (times[b] - times[a]) : 0;
    lines.push(`${row.name}: ${time(Math.round(left[a] + (left[b] - left[a]) * share))} of ${time(row.server.budget)} left`);
    return lines.join("\n");
  }
  const starts = root.segments[START], end = (i) => starts[i] + root.segments[LENGTH][i];
  const i = row.is[first(row.is, end, here)];
  for (const table of root.tables) {
    const slot = table.slots.find(({ start, end }) => here % table.frame >= start && here % table.frame < end);
    if (slot && (table.cpu === null || table.cpu === row.cpu)) lines.push(`slot of ${slot.owner}`);
  }
  if (i === undefined || starts[i] > here) return lines.concat(row.kind === "cpu" ? "idle" : `${row.name} does not run`).join("\n");
  const task = root.segments[TASK][i], job = root.segments[JOB][i];
  lines.push(`${root.tasks[task].name}, job ${job}, on CPU ${root.segments[CPU][i]}`, `runs ${time(starts[i])} to ${time(end(i))}`);
  const of = charts.find((chart) => chart.root === root).rows.find((one) => one.kind === "task" && one.task === task);
  const k = of.jobs.find((k) => root.jobs[NUMBER][k] === job);
  if (k !== undefined) {
    const [release, deadline, done] = [RELEASE, DEADLINE, END].map((column) => root.jobs[column][k]);
    lines.push(`released ${time(release)}, deadline ${time(deadline)}`, `response ${time(done - release)}`);
    if (done > deadline) lines.push(`late by ${time(done - deadline)}`);
  }
  return lines.join("\n");
}

{
  const strip = byId("overview");
  const to = (event) => {
    const box = strip.getBoundingClientRect();
    return data.duration * Math.min(Math.max((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT), 0), 1);
  };
  let begun = null;
  strip.addEventListener("pointerdown", (event) => { begun = to(event); strip.setPointerCapture(event.pointerId); });
  strip.addEventListener("pointermove", (event) => {
    if (begun !== null && Math.abs(to(event) - begun) > data.duration / 500) show(Math.min(begun, to(event)), Math.max(begun, to(event)));
  });
  strip.addEventListener("pointerup", (event) => {
    const half = (view.to - view.from) / 2;
    if (begun !== null && Math.abs(to(event) - begun) <= data.duration / 500) show(to(event) - half, to(event) + half);
    begun = null;
  });
}

const keys = {
  ArrowLeft: () => moveBy(-0.1), ArrowRight: () => moveBy(0.1), "+": () => zoomBy(0.7), "=": () => zoomBy(0.7), "-": () => zoomBy(1.4),
  "0": () => show(0, data.duration), n: () => jump(1), p: () => jump(-1), "?": () => { byId("help").open = !byId("help").open; },
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});
for (const [id, key] of [["all", "0"], ["in", "+"], ["out", "-"], ["previous", "p"], ["next", "n"]]) byId(id).addEventListener("click", keys[key]);
for (const id of ["previous", "next"]) byId(id).disabled = misses.length === 0;

addEventListener("resize", () => requestAnimationFrame(draw));
addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => requestAnimationFrame(draw));
// On paper: dark on white, and every row.
addEventListener("beforeprint", () => { document.documentElement.className = "print"; draw(); });
addEventListener("afterprint", () => { document.documentElement.className = ""; draw(); });
