// What every page needs: its data, colours, and times as people write them.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Hues that differ for people who see colours differently (Okabe and Ito), then darker, then lighter ones.
const hues = [[0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [213, 94, 0], [140, 122, 0]];
const shaded = (number) => {
  const round = Math.floor(number / hues.length) % 3;
  return hues[number % hues.length].map((part) => Math.round(round === 1 ? 0.62 * part : round === 2 ? part + 0.35 * (255 - part) : part));
};
const colors = hues.concat(hues, hues).map((_, number) => `rgb(${shaded(number).join(" ")})`);
const color = (number) => colors[number % colors.length];
// Black or white, whichever is easier to read on a colour.
const onColor = (number) => {
  const [r, g, b] = shaded(number);
  return 0.3 * r + 0.59 * g + 0.11 * b > 125 ? "#000" : "#fff";
};

const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const unitOf = (ns) => units.find(([unit]) => Math.abs(ns) >= unit) ?? units[3];
const time = (ns) => {
  const [unit, name] = unitOf(ns);
  return +(ns / unit).toPrecision(7) + " " + name;
};
// As the command line prints it: three digits after the point, cut off.
const short = (ns) => {
  const [unit, name] = unitOf(ns);
  return Math.floor(ns / unit) + (Math.floor(ns % unit * 1000 / unit) / 1000).toFixed(3).slice(1).replace(/\.?0+$/, "") + " " + name;
};
// Exact to `step`, all in the unit that suits `most`.
const tick = (ns, step, most) => {
  const [unit, name] = unitOf(most);
  return (ns / unit).toFixed(Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9))) + " " + name;
};

function element(name, text) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
}
