// The table of bounds, and a plot for each node: steps of demand against the least supply.

const SVG = "http://www.w3.org/2000/svg", WIDE = 560, HIGH = 260, LEFT = 58, RIGHT = 12, TOP = 12, BOTTOM = 26;
// How much was drawn: what a test asks for.
const drawn = { plots: 0, supply: 0, demand: 0, rows: 0 };

function shape(parent, name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const tasks = data.roots.flatMap((root) => root.tasks);
const places = { cpu: "the CPU of", partition: "partition", server: "server" };

function head() {
  document.title = data.title;
  byId("title").textContent = data.title;
  const facts = byId("facts"), count = (verdict) => tasks.filter((task) => task.verdict === verdict).length;
  facts.append(`${tasks.length} tasks: ${count("proved")} proved`);
  if (count("refuted")) facts.append(", ", element("b", `${count("refuted")} refuted`));
  if (count("unknown")) facts.append(", ", element("b", `${count("unknown")} unknown`));
  if (data.what_if.length) facts.append("; what if ", data.what_if.join(", "));
}

// How much of the deadline the bound takes.
function bar(task) {
  const cell = element("td");
  if (task.bound_ns === null) return cell;
  const holder = element("span"), part = element("b"), share = task.bound_ns / Math.max(task.deadline_ns, 1);
  holder.className = "slack";
  part.style.width = Math.min(100 * share, 100) + "%";
  if (share > 1) part.className = "over";
  holder.append(part);
  cell.append(holder, ` ${Math.round(100 * share)} %`);
  return cell;
}

function table(root) {
  const holder = byId("tables");
  if (data.roots.length > 1) holder.append(element("h3", root.name));
  const made = element("table"), titles = element("tr");
  for (const name of ["task", "deadline", "bound", "slack", "of the deadline", "verdict", "test", "kind"]) titles.append(element("th", name));
  made.append(titles);
  const say = (ns) => (ns === null ? "–" : short(ns));
  for (const task of root.tasks) {
    const line = element("tr");
    line.append(element("td", task.name), element("td", task.deadline_ns === null ? "–" : time(task.deadline_ns)), element("td", say(task.bound_ns)));
    line.append(element("td", say(task.slack_ns)), bar(task));
    const verdict = element("td", task.verdict);
    verdict.className = task.verdict;
    line.append(verdict, element("td", task.test ?? "–"), element("td", task.kind ?? "–"));
    made.append(line);
    drawn.rows += 1;
    if (!task.why) continue;
    const why = element("tr"), cell = element("td"), miss = task.witness;
    cell.colSpan = 8;
    cell.className = "why";
    cell.textContent = task.why + (miss ? `; job ${miss.job}, released at ${time(miss.release_ns)}, ends at ${time(miss.end_ns)}, ${time(miss.end_ns - miss.deadline_ns)} late` : "");
    line.className = "explained";
    why.append(cell);
    made.append(why);
  }
  holder.append(made);
}

function papers() {
  const known = new Map(tasks.filter((task) => task.test).map((task) => [task.test, task.paper]));
  for (const [test, paper] of known) byId("papers").append(element("div", `${test}: ${paper}`));
}

function stepOf(most, room) {
  const least = most / room, ten = 10 ** Math.floor(Math.log10(least));
  return Math.max([1, 2, 5, 10].map((n) => n * ten).find((step) => step >= least), 1);
}

// What a curve has at an instant: of steps the last one, of corners what lies between.
function valueAt([times, works], at, straight) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= at) low = middle + 1; else high = middle;
  }
  if (low === 0) return 0;
  if (!straight || low === times.length) return works[low - 1];
  const [a, b] = [low - 1, low];
  return works[a] + (works[b] - works[a]) * (at - times[a]) / (times[b] - times[a]);
}

function plot(root, picture) {
  const figure = element("figure"), caption = element("figcaption"), note = element("span");
  const spare = picture.by_deadlines ? picture.given - picture.asked : picture.due - picture.mark;
  caption.append(element("b", `${places[picture.place]} ${picture.node}`), picture.by_deadlines ? ": deadlines of " : ": ", picture.subject, ", ");
  note.textContent = picture.exceeded
    ? (picture.by_deadlines ? `${time(picture.asked)} due by ${time(picture.mark)}, ${time(picture.given)} supplied` : `not done by ${time(picture.due)}`)
    : (picture.by_deadlines ? `${time(spare)} to spare at ${time(picture.mark)}` : `done at ${time(picture.mark)}, ${time(spare)} to spare`);
  if (picture.exceeded) note.className = "over";
  caption.append(note);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDE} ${HIGH}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "demand against supply; the line above has what matters in numbers");
  const most = Math.max(...picture.supply[1], ...picture.demand[1], 1);
  const x = (ns) => LEFT + (WIDE - LEFT - RIGHT) * ns / picture.window, y = (ns) => HIGH - BOTTOM - (HIGH - TOP - BOTTOM) * ns / most;
  const across = stepOf(picture.window, 6), up = stepOf(most, 5);
  for (let at = 0; at <= picture.window; at += across) {
    shape(svg, "path", { class: "grid", d: `M${x(at)} ${TOP}V${HIGH - BOTTOM}` });
    shape(svg, "text", { x: x(at), y: HIGH - 10, "text-anchor": at > 0.95 * picture.window ? "end" : "middle" }, tick(at, across, picture.window));
  }
  for (let at = 0; at <= most; at += up) {
    shape(svg, "path", { class: "grid", d: `M${LEFT} ${y(at)}H${WIDE - RIGHT}` });
    shape(svg, "text", { x: LEFT - 6, y: y(at) + 4, "text-anchor": "end" }, tick(at, up, most));
  }
  if (picture.due <= picture.window) shape(svg, "path", { class: "due", d: `M${x(picture.due)} ${TOP}V${HIGH - BOTTOM}` });
  const [times, works] = picture.demand;
  let steps = "";
  times.forEach((at, i) => { if (at < picture.window) steps += i ? `H${x(at)}V${y(works[i])}` : `M${x(at)} ${y(works[i])}`; });
  shape(svg, "path", { class: "demand", d: `${steps}H${x(picture.window)}` });
  const line = picture.supply[0].map((at, i) => `${x(at)} ${y(picture.supply[1][i])}`).join("L");
  shape(svg, "path", { class: "supply", d: `M${line}` });
  shape(svg, "circle", { class: "mark", cx: x(picture.mark), cy: y(picture.asked), r: 5 });
  const cursor = shape(svg, "path", { class: "cursor", d: "" });
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = picture.window * (WIDE * (event.clientX - box.left) / box.width - LEFT) / (WIDE - LEFT - RIGHT);
    const inside = at >= 0 && at <= picture.window;
    cursor.setAttribute("d", inside ? `M${x(at)} ${TOP}V${HIGH - BOTTOM}` : "");
    const exact = (ns) => tick(Math.round(ns), Math.max(picture.window / 1000, 1), picture.window);
    tell(event, inside ? [exact(at), `supply ${exact(valueAt(picture.supply, at, true))}`, `demand ${exact(valueAt(picture.demand, at, false))}`].join("\n") : "");
  });
  svg.addEventListener("pointerleave", () => { cursor.setAttribute("d", ""); byId("tip").hidden = true; });
  figure.append(caption, svg);
  byId("plots").append(figure);
  drawn.plots += 1;
  drawn.supply += picture.supply[0].length;
  drawn.demand += times.length;
}

function tell(event, text) {
  const tip = byId("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = Math.max(Math.min(event.clientX + 14, innerWidth - (tip.offsetWidth || 0) - 8), 0) + "px";
  tip.style.top = event.clientY + 16 + "px";
}

head();
for (const root of data.roots) table(root);
papers();
for (const root of data.roots) for (const picture of root.plots) plot(root, picture);
byId("pictures").hidden = drawn.plots === 0;
// On paper: dark on white.
addEventListener("beforeprint", () => { document.documentElement.className = "print"; });
addEventListener("afterprint", () => { document.documentElement.className = ""; });
// For tests, and for whoever opens the console.
window.talea = { data, drawn, valueAt };
