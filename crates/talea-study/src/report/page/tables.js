// The head of the page and the table below the schedule; then everything is drawn for the first time.

function head() {
  const total = (of) => data.roots.reduce((sum, root) => sum + root.sums.reduce((sum, task) => sum + task[of], 0), 0);
  const [jobs, late, refused] = ["jobs", "late", "refused"].map(total);
  document.title = data.title;
  byId("title").textContent = data.title;
  const facts = byId("facts");
  facts.append(`${time(data.duration)} with seed ${data.seed}: ${jobs.toLocaleString("en")} jobs, `);
  facts.append(late ? element("b", `${late.toLocaleString("en")} late`) : "none late");
  if (refused) facts.append(", ", element("b", `${refused.toLocaleString("en")} refused`));
  const cut = data.roots.map((root) => root.cut).filter((cut) => cut !== null);
  if (cut.length) facts.append(`; drawn up to ${time(Math.min(...cut))}, the table counts all`);
  if (data.head.length) {
    const made = element("table");
    data.head.forEach((cells, number) => {
      const line = element("tr");
      for (const cell of cells) line.append(element(number ? "td" : "th", cell));
      made.append(line);
    });
    byId("tables").append(made);
  }
  byId("legend").children[3].hidden = data.roots.every((root) => root.tables.length === 0);
  byId("legend").children[4].hidden = data.roots.every((root) => root.servers.length === 0);
}

function table({ root, rows }) {
  const holder = byId("tables");
  if (data.roots.length > 1) holder.append(element("h3", root.name));
  const made = element("table"), titles = element("tr");
  for (const name of ["task", "period", "deadline", "jobs", "late", "refused", "mean", "p99", "max", "response times"]) titles.append(element("th", name));
  made.append(titles);
  const say = (ns) => (ns === null ? "–" : short(ns));
  for (const row of rows.filter((row) => row.kind === "task")) {
    const task = root.tasks[row.task], sum = root.sums[row.task], line = element("tr");
    const name = element("td"), swatch = element("i");
    swatch.style.background = color(row.task);
    name.append(swatch, task.name);
    line.append(name);
    for (const text of [time(task.period), time(task.deadline), sum.jobs, sum.late, sum.refused, say(sum.mean), say(sum.p99)]) {
      line.append(element("td", String(text)));
    }
    if (sum.late) line.children[4].className = "late";
    if (sum.refused) line.children[5].className = "late";
    const response = (i) => root.jobs[END][i] - root.jobs[RELEASE][i];
    const worst = row.jobs.reduce((worst, i) => (worst === null || response(i) > response(worst) ? i : worst), null);
    const most = element("td"), button = element("button", say(sum.max));
    button.type = "button";
    button.title = "Show the longest";
    button.disabled = worst === null;
    button.addEventListener("click", () => {
      const width = 2 * response(worst) + 2 * task.period;
      show(root.jobs[RELEASE][worst] - task.period / 2, root.jobs[RELEASE][worst] + width);
      byId("charts").scrollIntoView({ block: "nearest" });
    });
    most.append(button);
    const cell = element("td");
    cell.innerHTML = histogram(row.jobs.map(response), task.deadline, color(row.task));
    line.append(most, cell);
    made.append(line);
  }
  holder.append(made);
}

// Bars from 0 to the larger of deadline and longest response; rare ones are still to be seen. Numbers only, no names.
function histogram(responses, deadline, fill) {
  const longest = responses.reduce((most, one) => Math.max(most, one), 0), most = Math.max(deadline, longest, 1), bars = new Array(60).fill(0);
  for (const response of responses) bars[Math.min(Math.floor(60 * response / most), 59)] += 1;
  const high = Math.max(...bars, 1), width = 240, at = width * deadline / most;
  const shapes = bars.map((n, i) => {
    const height = n ? Math.max(30 * n / high, 1.5) : 0;
    return n ? `<rect x="${4 * i}" y="${32 - height}" width="3.4" height="${height}" fill="${fill}"><title>${n}</title></rect>` : "";
  });
  const far = Math.min(Math.max(at, 46), width);
  return `<svg width="${width + 4}" height="46" viewBox="0 0 ${width + 4} 46" role="img" aria-label="distribution of response times">` +
    `<path class="axis" d="M0 32.5h${width}"/>${shapes.join("")}<path class="deadline" d="M${at} 0v34"/>` +
    `<text x="0" y="43">0</text><text class="deadline" x="${far}" y="43" text-anchor="${far > width - 60 ? "end" : "middle"}">${time(deadline)}</text>` +
    (longest > deadline && at < width - 120 ? `<text x="${width}" y="43" text-anchor="end">${short(longest)}</text>` : "") + "</svg>";
}

// The longest latencies of chains, each with its jobs; a button draws them through the schedule.
function chains() {
  if (!data.chains.length) return;
  const holder = byId("tables"), made = element("table"), titles = element("tr");
  holder.append(element("h3", "Chains"));
  for (const name of ["chain", "latency", "longest", "jobs"]) titles.append(element("th", name));
  made.append(titles);
  for (const chain of data.chains) {
    const [roots, tasks, jobs, , writes] = chain.jobs, line = element("tr"), cell = element("td");
    const end = writes[writes.length - 1], button = element("button", short(end - chain.start));
    button.type = "button";
    button.title = "Draw its jobs";
    button.addEventListener("click", () => {
      chosen = chosen === chain ? null : chain;
      const margin = (end - chain.start) / 8;
      show(chain.start - margin, end + margin);
      byId("charts").scrollIntoView({ block: "nearest" });
    });
    cell.append(button);
    const names = tasks.map((task, i) => `${data.roots[roots[i]].tasks[task].name} #${jobs[i]}`);
    line.append(element("td", chain.name), element("td", chain.kind), cell, element("td", names.join(", ")));
    made.append(line);
  }
  holder.append(made);
}

head();
for (const chart of charts) table(chart);
chains();
draw();
// For tests, and for whoever opens the console.
window.talea = {
  data, drawn, misses, view: () => [view.from, view.to], plot: () => [LEFT, charts[0].canvas.clientWidth - RIGHT],
  zoom: (from, to) => { view.from = from; view.to = to; draw(); }, first: performance.now(),
};
