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
  get: (_, name) => (name === "fillRect" ? () => { rectangles += 1; } : () => {}),
  set: () => true,
});
const made = [];
const element = (name) => {
  const self = {
    name, children: [], style: {}, textContent: "", clientWidth: 1200, listeners: {},
    append: (...more) => self.children.push(...more),
    setAttribute: () => {}, getContext: () => pen, setPointerCapture: () => {},
    getBoundingClientRect: () => ({ left: 0, top: 0, width: 1200, height: 400 }),
    addEventListener: (event, act) => { self.listeners[event] = act; },
  };
  made.push(self);
  return self;
};
const named = { data: { textContent: data } };
globalThis.window = globalThis;
globalThis.document = {
  documentElement: {}, title: "",
  getElementById: (id) => (named[id] ??= element(id)),
  createElement: element,
};
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "#000" });
globalThis.requestAnimationFrame = (act) => act();
globalThis.addEventListener = () => {};
globalThis.devicePixelRatio = 1;
new Function(script)();

const { drawn, view, zoom } = globalThis.talea;
const all = JSON.parse(data.replaceAll("<\\/", "</"));
const count = (at) => all.roots.reduce((sum, root) => sum + root[at][0].length, 0);
const due = all.roots.reduce((sum, root) => sum + root.jobs[3].filter((at) => at <= all.duration).length, 0);
// Each segment stands in the row of its CPU and in that of its task.
assert.strictEqual(drawn.segments, 2 * count("segments"));
assert.strictEqual(drawn.jobs, due);
assert(rectangles > 0);
// A tenth of the time shows about a tenth.
zoom(0, all.duration / 10);
assert(drawn.segments < count("segments") / 2 && drawn.segments > 0, `${drawn.segments}`);
const canvas = made.find((one) => one.name === "canvas");
const before = view();
canvas.listeners.wheel({ deltaY: -200, clientX: 600, preventDefault: () => {} });
assert(view()[1] - view()[0] < before[1] - before[0], "the wheel zooms in");
canvas.listeners.dblclick();
assert.deepStrictEqual(view(), [0, all.duration]);
canvas.listeners.pointermove({ clientX: 300, offsetY: 40, clientY: 40 });
canvas.listeners.keydown({ key: "+", preventDefault: () => {} });
const rows = made.filter((one) => one.name === "tr").length;
assert.strictEqual(rows, all.roots.reduce((sum, root) => sum + root.tasks.length + 1, 0));
console.log("drew every job");
