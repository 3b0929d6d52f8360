"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const colors = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00"];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const [CPU, TASK, JOB, START, LENGTH] = [0, 1, 2, 3, 4];
  const row = 26, left = 150, top = 26;
  let from = 0, to = data.duration;
  const charts = [];
  // How much was drawn last: what a test asks for.
  const drawn = { segments: 0, jobs: 0 };
  window.talea = { data, drawn, view: () => [from, to], zoom: (a, b) => { from = a; to = b; draw(); } };

  const time = (ns) => {
    for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
      if (Math.abs(ns) >= unit) return +(ns / unit).toPrecision(6) + " " + name;
    }
    return Math.round(ns) + " ns";
  };
  const element = (name, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  document.title = data.title;
  document.getElementById("title").textContent = data.title;
  const jobs = data.roots.reduce((sum, root) => sum + root.jobs[0].length, 0);
  const late = data.roots.reduce((sum, root) => sum + root.jobs[4].filter((end, i) => end > root.jobs[3][i]).length, 0);
  const cut = data.roots.find((root) => root.cut !== null);
  document.getElementById("facts").textContent =
    `${time(data.duration)}, ${jobs.toLocaleString()} jobs, ${late.toLocaleString()} of them late` +
    (cut ? `; drawn up to ${time(cut.cut)}, the rest is counted only on the command line` : "");

  for (const root of data.roots) {
    // Per row the numbers of its segments, which do not overlap, in order: found by halving.
    const rows = [];
    for (let cpu = 0; cpu < root.cpus; cpu++) rows.push({ name: `${root.name}: CPU ${cpu}`, is: [], cpu: true });
    root.tasks.forEach((task) => rows.push({ name: task.name, is: [], arrivals: [], jobs: [] }));
    const order = root.segments[START].map((_, i) => i).sort((a, b) => root.segments[START][a] - root.segments[START][b]);
    for (const i of order) {
      rows[root.segments[CPU][i]].is.push(i);
      rows[root.cpus + root.segments[TASK][i]].is.push(i);
    }
    root.arrivals[0].forEach((at, i) => rows[root.cpus + root.arrivals[1][i]].arrivals.push(at));
    root.jobs[0].forEach((task, i) => rows[root.cpus + task].jobs.push(i));
    rows.slice(root.cpus).forEach((task) => task.jobs.sort((a, b) => root.jobs[3][a] - root.jobs[3][b]));
    const canvas = element("canvas");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `schedule of ${root.name}; the table below has the same in numbers`);
    document.getElementById("charts").append(canvas);
    const chart = { root, rows, canvas };
    charts.push(chart);
    steer(chart);
    table(root);
  }

  function first(list, value, at) {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (value(list[middle]) < at) low = middle + 1; else high = middle;
    }
    return low;
  }

  function draw() {
    drawn.segments = drawn.jobs = 0;
    for (const chart of charts) drawOne(chart);
  }

  function drawOne({ root, rows, canvas }) {
    const width = canvas.clientWidth, height = top + rows.length * row + 8, scale = devicePixelRatio || 1;
    canvas.style.height = height + "px";
    canvas.width = width * scale;
    canvas.height = height * scale;
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    g.clearRect(0, 0, width, height);
    const x = (ns) => left + (width - left - 12) * (ns - from) / (to - from);
    const [ink, soft, line, bad] = ["--ink", "--soft", "--line", "--bad"].map(css);
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
    const step = 10 ** Math.floor(Math.log10((to - from) / 4));
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      g.strokeStyle = line;
      g.beginPath(); g.moveTo(x(at), top - 6); g.lineTo(x(at), height); g.stroke();
      g.fillStyle = soft; g.textAlign = "center"; g.fillText(time(at), x(at), 10);
    }
    rows.forEach((one, number) => {
      const base = top + (number + 1) * row - 5;
      g.fillStyle = ink; g.textAlign = "right";
      g.fillText(one.name.length > 20 ? one.name.slice(0, 19) + "…" : one.name, left - 8, base - 7);
      g.strokeStyle = line; g.beginPath(); g.moveTo(left, base); g.lineTo(width - 12, base); g.stroke();
      g.save(); g.beginPath(); g.rect(left, 0, width - left - 11, height); g.clip();
      const end = (i) => root.segments[START][i] + root.segments[LENGTH][i];
      let painted = -1;
      for (let k = first(one.is, end, from); k < one.is.length && root.segments[START][one.is[k]] <= to; k++) {
        const i = one.is[k], a = x(root.segments[START][i]), b = Math.max(x(end(i)), a + 0.5);
        drawn.segments += 1;
        // What lies within a pixel that is painted already is not painted again.
        if (b < painted) continue;
        painted = Math.ceil(b);
        g.fillStyle = colors[root.segments[TASK][i] % colors.length];
        g.fillRect(a, base - 13, b - a, 13);
      }
      if (!one.cpu) marks(g, root, one, base, x, { soft, ink, bad });
      g.restore();
    });
  }

  function marks(g, root, one, base, x, { soft, ink, bad }) {
    const room = (x(to) - x(from)) / 5;
    const arrivals = first(one.arrivals, (at) => at, from);
    const shown = first(one.arrivals, (at) => at, to + 1) - arrivals;
    if (shown < room) {
      g.strokeStyle = ink;
      for (let k = arrivals; k < arrivals + shown; k++) arrow(g, x(one.arrivals[k]), base, -1);
    }
    g.strokeStyle = soft;
    const deadline = (i) => root.jobs[3][i];
    const begin = first(one.jobs, deadline, from), end = first(one.jobs, deadline, to + 1);
    drawn.jobs += end - begin;
    for (let k = begin; k < end; k++) {
      const i = one.jobs[k];
      if (end - begin < room) arrow(g, x(deadline(i)), base - 18, 1);
      if (root.jobs[4][i] > deadline(i)) {
        g.fillStyle = bad;
        g.fillRect(x(deadline(i)) - 1.5, base - 20, 3, 6);
      }
    }
  }

  function arrow(g, x, y, way) {
    g.beginPath();
    g.moveTo(x, y); g.lineTo(x, y + way * 18);
    g.moveTo(x - 3, y + way * 14); g.lineTo(x, y + way * 18); g.lineTo(x + 3, y + way * 14);
    g.stroke();
  }

  function show(a, b) {
    const length = Math.min(Math.max(b - a, 10), data.duration);
    from = Math.min(Math.max(a, 0), data.duration - length);
    to = from + length;
    requestAnimationFrame(draw);
  }

  function steer({ root, rows, canvas }) {
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return from + (to - from) * (event.clientX - box.left - left) / (box.width - left - 12);
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const middle = at(event), by = Math.exp(event.deltaY / 400);
      show(middle - (middle - from) * by, middle + (to - middle) * by);
    }, { passive: false });
    let held = null;
    canvas.addEventListener("pointerdown", (event) => { held = at(event); canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { held = null; });
    canvas.addEventListener("pointermove", (event) => {
      const here = at(event);
      if (held !== null) return show(from + held - here, to + held - here);
      const number = Math.floor((event.offsetY - top) / row), one = rows[number];
      let text = "\u00a0";
      if (one && here >= from && here <= to) {
        const end = (i) => root.segments[START][i] + root.segments[LENGTH][i];
        const i = one.is[first(one.is, end, here)];
        text = time(here);
        if (i !== undefined && root.segments[START][i] <= here) {
          text += `: ${root.tasks[root.segments[TASK][i]].name}, job ${root.segments[JOB][i]}, ` +
            `${time(root.segments[START][i])} to ${time(end(i))} on CPU ${root.segments[CPU][i]}`;
        }
      }
      document.getElementById("under").textContent = text;
    });
    canvas.addEventListener("dblclick", () => show(0, data.duration));
    canvas.addEventListener("keydown", (event) => {
      const width = to - from;
      const ways = { ArrowLeft: [-0.1, -0.1], ArrowRight: [0.1, 0.1], "+": [0.15, -0.15], "-": [-0.2, 0.2], "0": null };
      if (!(event.key in ways)) return;
      event.preventDefault();
      const way = ways[event.key];
      if (way) show(from + way[0] * width, to + way[1] * width); else show(0, data.duration);
    });
  }

  function table(root) {
    const holder = document.getElementById("tables");
    if (data.roots.length > 1) holder.append(element("h3", root.name));
    const made = element("table"), head = element("tr");
    for (const name of ["task", "period", "deadline", "jobs", "late", "mean", "p99", "max", "response times"]) head.append(element("th", name));
    made.append(head);
    root.tasks.forEach((task, number) => {
      const responses = [];
      let late = 0;
      root.jobs[0].forEach((of, i) => {
        if (of !== number) return;
        responses.push(root.jobs[4][i] - root.jobs[2][i]);
        if (root.jobs[4][i] > root.jobs[3][i]) late += 1;
      });
      responses.sort((a, b) => a - b);
      const line = element("tr"), n = responses.length;
      const mean = n ? responses.reduce((a, b) => a + b, 0) / n : null;
      const quantile = (share) => (n ? responses[Math.max(Math.ceil(n * share) - 1, 0)] : null);
      const say = (ns) => (ns === null ? "–" : time(ns));
      for (const text of [task.name, time(task.period), time(task.deadline), n, late, say(mean), say(quantile(0.99)), say(quantile(1))]) {
        line.append(element("td", String(text)));
      }
      if (late) line.children[4].className = "late";
      const cell = element("td");
      cell.innerHTML = histogram(responses, task.deadline, colors[number % colors.length]);
      line.append(cell);
      made.append(line);
    });
    holder.append(made);
  }

  // Bars from 0 to the larger of deadline and longest response; the deadline is a line.
  function histogram(responses, deadline, color) {
    const most = Math.max(deadline, responses[responses.length - 1] || 0), bars = new Array(40).fill(0);
    for (const response of responses) bars[Math.min(Math.floor(40 * response / most), 39)] += 1;
    const high = Math.max(...bars, 1);
    const shapes = bars.map((n, i) => (n ? `<rect x="${4 * i}" y="${24 - 22 * n / high}" width="3.4" height="${22 * n / high}" fill="${color}"/>` : ""));
    const at = 160 * deadline / most;
    return `<svg width="164" height="26" role="img"><path d="M0 24h162" stroke="${css("--line")}"/>${shapes.join("")}` +
      `<path d="M${at} 0v26" stroke="${css("--bad")}"/></svg>`;
  }

  addEventListener("resize", draw);
  draw();
})();
