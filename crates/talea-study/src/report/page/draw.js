// The canvases: the strip with the whole run, and a chart per root of which only the rows in the window are drawn.

const ROW = 28, BAR = 14, TOP = 24, RIGHT = 14;
const longest = Math.max(...charts.flatMap(({ rows }) => rows.map((row) => row.name.length)), 4);
// Of a sheet of paper, in the pixels of a screen.
const PAPER = 1050;
// Room for names; less on a small screen.
let LEFT = 0;
const isPrinting = () => document.documentElement.className === "print";
const widthOf = (canvas) => (isPrinting() ? PAPER : canvas.clientWidth);

function pen(canvas, height) {
  const scale = isPrinting() ? 2 : devicePixelRatio || 1, width = widthOf(canvas);
  canvas.style.height = isPrinting() ? "auto" : height + "px";
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const g = canvas.getContext("2d");
  g.scale(scale, scale);
  g.clearRect(0, 0, width, height);
  g.font = "12px system-ui, sans-serif";
  g.textBaseline = "middle";
  return g;
}

function stepOf(width) {
  const least = (view.to - view.from) * 110 / Math.max(width, 110), ten = 10 ** Math.floor(Math.log10(least));
  return Math.max([1, 2, 5, 10].map((n) => n * ten).find((step) => step >= least), 1);
}

function draw() {
  for (const name in drawn) drawn[name] = 0;
  const ink = {};
  for (const name of ["ink", "soft", "line", "bad", "slot", "slot-odd", "budget"]) ink[name] = css("--" + name);
  LEFT = Math.min(Math.max(60 + 6.6 * longest, 120), 260, 0.4 * widthOf(charts[0].canvas));
  for (const chart of charts) drawChart(chart, ink);
  drawOverview(ink);
  const [from, to] = [view.from, view.to].map((at) => tick(at, (view.to - view.from) / 1000, view.to));
  byId("range").textContent = `${from} to ${to}: ${time(view.to - view.from)}`;
}

function drawChart({ root, rows, canvas, holder }, ink) {
  const whole = TOP + rows.length * ROW + 6, printing = isPrinting();
  holder.style.height = printing ? "auto" : whole + "px";
  // Browsers refuse canvases that are too high.
  const height = Math.min(whole, printing ? 12000 : innerHeight);
  const g = pen(canvas, height), width = widthOf(canvas);
  const above = printing ? 0 : Math.min(Math.max(-holder.getBoundingClientRect().top, 0), whole - height);
  const x = (ns) => LEFT + (width - LEFT - RIGHT) * (ns - view.from) / (view.to - view.from);
  const pass = { g, root, x, ink, room: (width - LEFT - RIGHT) / 6 };
  const begin = Math.floor(above / ROW), end = Math.min(rows.length, Math.ceil((above + height - TOP) / ROW) + 1);
  g.save();
  g.beginPath(); g.rect(0, TOP, width, height - TOP); g.clip();
  for (let number = begin; number < end; number++) {
    const row = rows[number], base = TOP + (number + 1) * ROW - 5 - above;
    if (number === root.cpus || (number > 0 && row.kind !== rows[number - 1].kind)) {
      g.strokeStyle = ink.soft; g.globalAlpha = 0.5;
      g.beginPath(); g.moveTo(8, base - ROW + 5.5); g.lineTo(width - RIGHT, base - ROW + 5.5); g.stroke();
      g.globalAlpha = 1;
    }
    g.save(); g.beginPath(); g.rect(LEFT, 0, width - LEFT - RIGHT, height); g.clip();
    slots(pass, row, base);
    grid(pass, base, width);
    if (row.kind === "budget") budget(pass, row, base);
    else {
      segments(pass, row, base);
      if (row.kind === "task") marks(pass, row, base);
    }
    g.restore();
    g.strokeStyle = ink.line; g.beginPath(); g.moveTo(LEFT, base + 0.5); g.lineTo(width - RIGHT, base + 0.5); g.stroke();
    label(pass, row, base);
  }
  g.save(); g.beginPath(); g.rect(LEFT, 0, width - LEFT - RIGHT, height); g.clip();
  if (chosen) chainPath(pass, rows, above);
  g.restore();
  g.restore();
  axis(pass, width);
}

// The chosen chain: a line from the read to the write of each of its jobs, and on to the next job. It leaves a chart for a job of another root.
function chainPath({ g, root, x, ink }, rows, above) {
  const [roots, tasks, , reads, writes] = chosen.jobs, own = charts.findIndex((chart) => chart.root === root);
  const middle = (task) => TOP + (rows.findIndex((row) => row.task === task) + 1) * ROW - 5 - BAR / 2 - above;
  const corners = [];
  reads.forEach((read, i) => {
    if (roots[i] !== own) { corners.push(null); return; }
    const y = middle(tasks[i]);
    if (i === 0 && chosen.start < read) corners.push([x(chosen.start), y]);
    corners.push([x(read), y], [x(writes[i]), y]);
    drawn.chainJobs += 1;
  });
  g.strokeStyle = g.fillStyle = ink.bad;
  g.lineWidth = 2;
  g.beginPath();
  let isOpen = false;
  for (const corner of corners) {
    if (corner) g[isOpen ? "lineTo" : "moveTo"](...corner);
    isOpen = corner !== null;
  }
  g.stroke();
  for (const corner of corners) if (corner) { g.beginPath(); g.arc(...corner, 3, 0, 2 * Math.PI); g.fill(); }
  g.lineWidth = 1;
}

function grid({ g, x, ink }, base, width) {
  const step = stepOf(width - LEFT - RIGHT);
  g.strokeStyle = ink.line;
  g.beginPath();
  for (let k = Math.ceil(view.from / step); k * step <= view.to; k++) { g.moveTo(x(k * step), base - ROW + 5); g.lineTo(x(k * step), base); }
  g.stroke();
}

function axis({ g, x, ink }, width) {
  const step = stepOf(width - LEFT - RIGHT);
  g.fillStyle = ink.soft;
  g.textAlign = "center";
  for (let k = Math.ceil(view.from / step); k * step <= view.to; k++) {
    const text = tick(k * step, step, view.to), half = g.measureText(text).width / 2;
    g.fillText(text, Math.min(Math.max(x(k * step), LEFT + half - 10), width - half - 2), TOP / 2);
  }
}

function label({ g, root, ink }, row, base) {
  const prefix = row.kind === "budget" ? "budget of " : "", most = Math.floor((LEFT - 34) / 6.6) - prefix.length;
  const name = prefix + (row.name.length > most ? row.name.slice(0, most - 1) + "…" : row.name);
  g.textAlign = "right";
  g.fillStyle = row.kind === "task" ? ink.ink : ink.soft;
  g.fillText(name, LEFT - (row.kind === "task" ? 24 : 10), base - BAR / 2);
  if (row.kind === "task") { g.fillStyle = color(row.task); g.fillRect(LEFT - 19, base - BAR / 2 - 5, 9, 9); }
}

function segments({ g, root, x, ink }, row, base) {
  const starts = root.segments[START], lengths = root.segments[LENGTH], tasks = root.segments[TASK];
  const end = (i) => starts[i] + lengths[i], pixel = (view.to - view.from) / (x(view.to) - x(view.from));
  const from = first(row.is, end, view.from), to = first(row.is, (i) => starts[i], view.to + 1);
  drawn.segments += Math.max(to - from, 0);
  for (let k = from, next; k < to; k = next) {
    const i = row.is[k], a = x(starts[i]), b = Math.max(x(end(i)), a + 0.6), painted = Math.ceil(b);
    // What lies within a pixel that is painted already is not painted again.
    next = k + 1;
    if (next < to && x(end(row.is[next])) < painted) next = Math.max(first(row.is, end, view.from + (painted - LEFT) * pixel), next);
    drawn.rectangles += 1;
    g.fillStyle = color(tasks[i]);
    g.fillRect(a, base - BAR, b - a, BAR);
    const [left, right] = [Math.max(a, LEFT), Math.min(b, x(view.to))];
    if (right - left < 34) continue;
    const text = row.kind === "cpu" ? root.tasks[tasks[i]].name : "#" + root.segments[JOB][i] + (root.cpus > 1 ? " on " + root.segments[CPU][i] : "");
    if (g.measureText(text).width > right - left - 8) continue;
    g.fillStyle = onColor(tasks[i]);
    g.textAlign = "center";
    g.fillText(text, (left + right) / 2, base - BAR / 2 + 0.5);
  }
}

function marks({ g, root, x, ink, room }, row, base) {
  const from = first(row.arrivals, (at) => at, view.from), shown = first(row.arrivals, (at) => at, view.to + 1) - from;
  drawn.arrivals += shown;
  if (shown < room) {
    g.strokeStyle = ink.ink;
    for (let k = from; k < from + shown; k++) arrow(g, x(row.arrivals[k]), base, -1);
  }
  const deadlines = root.jobs[DEADLINE], ends = root.jobs[END];
  const begin = first(row.jobs, (i) => deadlines[i], view.from), end = first(row.jobs, (i) => deadlines[i], view.to + 1);
  drawn.jobs += end - begin;
  g.strokeStyle = ink.soft;
  if (end - begin < room) {
    for (let k = begin; k < end; k++) arrow(g, x(deadlines[row.jobs[k]]), base - ROW + 8, 1);
    const due = row.unfinished.map((i) => root.unfinished[DEADLINE][i]).filter((at) => at >= view.from && at <= view.to);
    if (end - begin + due.length < room) for (const at of due) arrow(g, x(at), base - ROW + 8, 1);
  }
  // From the deadline to the end: a miss whose deadline is left of the view still shows.
  g.fillStyle = ink.bad;
  let painted = -1;
  const late = (deadline, end) => {
    if (end < view.from || deadline > view.to) return;
    drawn.misses += 1;
    const a = x(deadline), b = Math.max(x(end), a + 3);
    if (b < painted) return;
    painted = b;
    g.fillRect(a, base - ROW + 7, b - a, 3);
    g.beginPath(); g.moveTo(a - 1, base - ROW + 6); g.lineTo(a + 5, base - ROW + 6); g.lineTo(a - 1, base - ROW + 14); g.fill();
  };
  row.latest ??= lateness(root, row);
  for (let k = first(row.jobs, (i) => deadlines[i], view.from - row.latest); k < end; k++) {
    const i = row.jobs[k];
    if (ends[i] > deadlines[i]) late(deadlines[i], ends[i]);
  }
  for (const i of row.unfinished) if (root.unfinished[DEADLINE][i] <= data.duration) late(root.unfinished[DEADLINE][i], data.duration);
}

// The longest time by which a job of a row was late.
function lateness(root, row) {
  return row.jobs.reduce((most, i) => Math.max(most, root.jobs[END][i] - root.jobs[DEADLINE][i]), 0);
}

function arrow(g, x, y, way) {
  g.beginPath();
  g.moveTo(x, y); g.lineTo(x, y + way * 19);
  g.moveTo(x - 3, y + way * 14); g.lineTo(x, y + way * 19); g.lineTo(x + 3, y + way * 14);
  g.stroke();
}

// Where a table repeats too often to be seen, nothing is shaded.
function slots({ g, root, x, ink }, row, base) {
  for (const table of root.tables) {
    if (row.kind === "budget" || (row.kind === "cpu" && table.cpu !== null && table.cpu !== row.cpu)) continue;
    if (x(table.frame) - x(0) < 8 * Math.max(table.slots.length, 1)) continue;
    for (let frame = Math.floor(view.from / table.frame) * table.frame; frame < view.to; frame += table.frame) {
      table.slots.forEach((slot, number) => {
        const start = frame + slot.start, end = Math.min(frame + slot.end, data.duration);
        if (end <= view.from || start >= view.to || (row.kind === "task" && !slot.tasks.includes(row.task))) return;
        drawn.slots += 1;
        g.fillStyle = number % 2 ? ink["slot-odd"] : ink.slot;
        g.fillRect(x(start), base - ROW + 5, x(end) - x(start), ROW);
        const room = Math.min(x(end), x(view.to)) - Math.max(x(start), LEFT);
        if (row.kind !== "cpu" || room < 6.6 * slot.owner.length) return;
        g.font = "10px system-ui, sans-serif";
        g.fillStyle = ink.soft;
        g.textAlign = "left";
        g.fillText(slot.owner, Math.max(x(start), LEFT) + 3, base - BAR - 4.5);
        g.font = "12px system-ui, sans-serif";
      });
    }
  }
}

// A polyline; where it has more corners than the screen has pixels, the range that it covers in each of them.
function budget({ g, x, ink }, row, base) {
  const [times, left] = row.curve, high = (ns) => base - (ROW - 9) * ns / Math.max(row.server.budget, 1);
  const from = Math.max(first(times, (at) => at, view.from) - 1, 0), to = Math.min(first(times, (at) => at, view.to + 1) + 1, times.length);
  drawn.corners += to - from;
  g.strokeStyle = g.fillStyle = ink.budget;
  if (to === from) return;
  if (to - from > 2 * (x(view.to) - LEFT)) {
    g.globalAlpha = 0.6;
    for (let k = from; k < to;) {
      const at = Math.floor(x(times[k]));
      let [least, most] = [left[k], left[k]];
      for (; k < to && Math.floor(x(times[k])) === at; k++) { least = Math.min(least, left[k]); most = Math.max(most, left[k]); }
      g.fillRect(at, high(most), 1, Math.max(high(least) - high(most), 1));
    }
    g.globalAlpha = 1;
    return;
  }
  const last = to === times.length ? x(data.duration) : x(times[to - 1]);
  g.beginPath();
  g.moveTo(x(times[from]), high(left[from]));
  for (let k = from + 1; k < to; k++) g.lineTo(x(times[k]), high(left[k]));
  g.lineTo(last, high(left[to - 1]));
  g.stroke();
  g.lineTo(last, base); g.lineTo(x(times[from]), base);
  g.globalAlpha = 0.22;
  g.fill();
  g.globalAlpha = 1;
}

// How busy the CPUs are over the whole run, and where deadlines are missed.
function drawOverview(ink) {
  const canvas = byId("overview"), g = pen(canvas, 44), width = canvas.clientWidth, columns = Math.max(Math.floor(width - LEFT - RIGHT), 1);
  const all = (ns) => LEFT + columns * ns / data.duration, cpus = charts.reduce((sum, { root }) => sum + root.cpus, 0);
  if (canvas.busyFor !== columns) {
    canvas.busyFor = columns;
    canvas.busy = busy(columns);
    canvas.missed = new Uint32Array(columns);
    for (const [at] of misses) canvas.missed[Math.min(Math.floor(columns * at / data.duration), columns - 1)] += 1;
  }
  g.fillStyle = ink.soft;
  g.textAlign = "right";
  g.fillText("whole run", LEFT - 10, 26);
  g.globalAlpha = 0.5;
  canvas.busy.forEach((share, i) => { if (share > 0) g.fillRect(LEFT + i, 40 - 28 * share / cpus, 1, 28 * share / cpus); });
  g.globalAlpha = 1;
  g.fillStyle = ink.bad;
  const most = Math.max(...canvas.missed);
  canvas.missed.forEach((n, i) => { if (n > 0) g.fillRect(LEFT + i - 0.5, 2, 2, 4 + 6 * n / most); });
  g.strokeStyle = ink.ink;
  g.lineWidth = 1.5;
  const [a, b] = [all(view.from), all(view.to)];
  g.strokeRect(a - 1, 1, Math.max(b - a, 2) + 2, 42);
}

// Per column the CPUs that work in it, on average.
function busy(columns) {
  const sums = new Float64Array(columns), each = data.duration / columns;
  for (const { root } of charts) {
    root.segments[START].forEach((start, i) => {
      const end = start + root.segments[LENGTH][i];
      for (let at = Math.floor(start / each); at < columns && at * each < end; at++) {
        sums[at] += (Math.min(end, (at + 1) * each) - Math.max(start, at * each)) / each;
      }
    });
  }
  return Array.from(sums);
}
