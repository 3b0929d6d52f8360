// What was simulated, and the part of it that is shown.

// Columns of segments, jobs and unfinished jobs.
const [CPU, TASK, JOB, START, LENGTH] = [0, 1, 2, 3, 4];
const [OF, NUMBER, RELEASE, DEADLINE, END] = [0, 1, 2, 3, 4];

// The first of a sorted list whose value is not before `at`.
function first(list, value, at) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value(list[middle]) < at) low = middle + 1; else high = middle;
  }
  return low;
}

// Per row the numbers of its segments, which do not overlap, in order: found by halving.
function rowsOf(root) {
  const rows = [];
  const [starts, lengths] = [root.segments[START], root.segments[LENGTH]];
  for (let cpu = 0; cpu < root.cpus; cpu++) rows.push({ kind: "cpu", cpu, name: "", is: [], busy: 0 });
  root.servers.forEach((server, number) => rows.push({ kind: "budget", name: server.name, server, curve: root.budgets[number] }));
  const firstTask = rows.length;
  root.tasks.forEach((task, number) => {
    rows.push({ kind: "task", task: number, name: task.name, is: [], arrivals: [], jobs: [], unfinished: [] });
  });
  for (const i of starts.map((_, i) => i).sort((a, b) => starts[a] - starts[b])) {
    const cpu = rows[root.segments[CPU][i]];
    cpu.is.push(i);
    cpu.busy += lengths[i];
    rows[firstTask + root.segments[TASK][i]].is.push(i);
  }
  root.arrivals[0].forEach((at, i) => rows[firstTask + root.arrivals[1][i]].arrivals.push(at));
  root.jobs[OF].forEach((task, i) => rows[firstTask + task].jobs.push(i));
  root.unfinished[OF].forEach((task, i) => rows[firstTask + task].unfinished.push(i));
  for (const row of rows.slice(firstTask)) row.jobs.sort((a, b) => root.jobs[DEADLINE][a] - root.jobs[DEADLINE][b]);
  const span = root.cut ?? data.duration;
  for (const row of rows.slice(0, root.cpus)) {
    row.name = `${data.roots.length > 1 ? root.name + ", " : ""}CPU ${row.cpu}: ${Math.round(100 * row.busy / span)} %`;
  }
  return rows;
}

// Deadlines that were missed, in order: [time, row, root].
function missesOf(root, rows) {
  const found = [];
  for (const row of rows) {
    if (row.kind !== "task") continue;
    for (const i of row.jobs) if (root.jobs[END][i] > root.jobs[DEADLINE][i]) found.push([root.jobs[DEADLINE][i], row, root]);
    for (const i of row.unfinished) {
      if (root.unfinished[DEADLINE][i] <= data.duration) found.push([root.unfinished[DEADLINE][i], row, root]);
    }
  }
  return found;
}

const charts = data.roots.map((root) => ({ root, rows: rowsOf(root) }));
const misses = charts.flatMap(({ root, rows }) => missesOf(root, rows)).sort((a, b) => a[0] - b[0]);

// What is shown; a screen's worth of nanoseconds at least.
const view = { from: 0, to: data.duration };
// How much was drawn last: what a test asks for.
const drawn = { segments: 0, rectangles: 0, jobs: 0, arrivals: 0, misses: 0, slots: 0, corners: 0, chainJobs: 0 };
// The latency of a chain that is drawn through the schedule.
let chosen = null;

function show(from, to) {
  const length = Math.min(Math.max(to - from, 20), data.duration);
  view.from = Math.min(Math.max(from, 0), data.duration - length);
  view.to = view.from + length;
  requestAnimationFrame(draw);
}
