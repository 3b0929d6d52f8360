// Runs the script of a report page on a stage that only pretends to be a browser: what it asks for is there, what it
// draws is counted. Usage: node stage.js PAGE
"use strict";
const assert = require("assert");
const page = require("fs").readFileSync(process.argv[2], "utf8");
const between = (start, end) => page.split(start)[1].split(end)[0];
const data = between('<script id="data" type="application/json">', "</script>");
const script = page.slice(page.lastIndexOf("<script>") + 8, page.lastIndexOf("</script>"));

let rectangles = 0;
const pen = new Proxy({}, {
  get: (_, name) => ({ fillRect: () => { rectangles += 1; }, measureText: (text) => ({ width: 7 * text.length }) })[name] ?? (() => {}),
  set: (_, name, value) => { assert(value !== undefined && !String(value).includes("NaN"), `${name} is ${value}`); return true; },
});
const made = [];
const element = (name) => {
  const self = {
    name, children: [], style: {}, textContent: "", clientWidth: 1200, listeners: {},
    append: (...more) => self.children.push(...more),
    setAttribute: () => {}, getContext: () => pen, setPointerCapture: () => {}, scrollIntoView: () => {},
    getBoundingClientRect: () => ({ left: 0, top: 0, width: 1200, height: 400 }),
    addEventListener: (event, act) => { self.listeners[event] = act; },
  };
  made.push(self);
  return self;
};
const named = { data: { textContent: data } };
const keys = [];
globalThis.window = globalThis;
globalThis.innerWidth = 1280;
globalThis.innerHeight = 2000;
globalThis.document = {
  documentElement: { className: "" }, title: "",
  getElementById: (id) => {
    if (!named[id]) {
      named[id] = element(id);
      for (let i = 0; i < 5; i++) named[id].children.push({});
    }
    return named[id];
  },
  createElement: element,
};
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "#000" });
globalThis.matchMedia = () => ({ addEventListener: () => {} });
globalThis.requestAnimationFrame = (act) => act();
globalThis.addEventListener = (event, act) => { if (event === "keydown") keys.push(act); };
globalThis.devicePixelRatio = 1;
new Function(script)();

const { drawn, view, zoom } = globalThis.talea;
const all = JSON.parse(data);
const sum = (of) => all.roots.reduce((sum, root) => sum + of(root), 0);
const due = sum((root) => root.jobs[3].filter((at) => at <= all.duration).length);
const late = sum((root) => root.sums.reduce((sum, task) => sum + task.late, 0));
// Each segment stands in the row of its CPU and in that of its task.
assert.strictEqual(drawn.segments, 2 * sum((root) => root.segments[0].length));
assert.strictEqual(drawn.jobs, due);
assert.strictEqual(drawn.arrivals, sum((root) => root.arrivals[0].length));
assert.strictEqual(drawn.misses, late);
assert.strictEqual(drawn.corners, sum((root) => root.budgets.reduce((sum, curve) => sum + curve[0].length, 0)));
assert(rectangles > 0);
// A tenth of the time shows about a tenth.
const whole = { ...drawn };
zoom(0, all.duration / 10);
assert(drawn.segments < whole.segments / 4 && drawn.segments > 0, `${drawn.segments}`);
const canvas = made.find((one) => one.name === "canvas");
const before = view();
canvas.listeners.wheel({ deltaX: 0, deltaY: -200, clientX: 600, preventDefault: () => {} });
assert(view()[1] - view()[0] < before[1] - before[0], "the wheel zooms in");
canvas.listeners.dblclick();
assert.deepStrictEqual(view(), [0, all.duration]);
// What is under the pointer is told, in every row and wherever it is.
for (let y = 0; y < 400; y += 7) {
  for (let x = 0; x < 1200; x += 13) canvas.listeners.pointermove({ clientX: x, clientY: y });
}
assert(/\n/.test(named.tip.textContent) && !/undefined|NaN/.test(named.tip.textContent), named.tip.textContent);
for (const key of ["+", "-", "ArrowLeft", "ArrowRight", "n", "p", "?", "0", "Escape"]) {
  for (const act of keys) act({ key, preventDefault: () => {} });
}
assert.deepStrictEqual(view(), [0, all.duration]);
// The button of a latency draws the jobs of its chain, and no other jobs.
made.filter((one) => one.title === "Draw its jobs").forEach((button, number) => {
  button.listeners.click();
  assert.strictEqual(drawn.chainJobs, all.chains[number].jobs[0].length);
});
const rows = made.filter((one) => one.name === "tr").length, chains = all.chains.length;
assert.strictEqual(rows, sum((root) => root.tasks.length + 1) + all.head.length + (chains && chains + 1));
console.log("drew every job");
