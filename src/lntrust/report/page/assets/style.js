// Colours, symbols and dashes: a method looks the same in every chart. Okabe and Ito's colours and Tol's, which
// colour-blind readers can tell apart; symbols and dashes tell what colours alone do not.
"use strict";

const METHODS = {
  lntrust: ["#0072b2", "circle"], independent: ["#6b7280", "rect"], uniform: ["#e69f00", "triangle"],
  mean_teacher: ["#cc79a7", "diamond"], dml: ["#009e73", "circle"], dml_public: ["#44aa99", "rect"],
  fedmd: ["#d55e00", "triangle"], desa: ["#882255", "diamond"], fedpae: ["#56b4e9", "rect"],
  d_psgd: ["#aa4499", "circle"], dfedavg: ["#999933", "diamond"], gossip_fedavg: ["#b8860b", "rect"],
  decdiff_vt: ["#5b4fc0", "triangle"], centralized: ["#3d3d3d", "diamond"],
  // Presets of LNTrust: blue as it is, lighter and darker. On a dark page the darkest is the lightest.
  "lntrust+lean": ["#6fa3e0", "triangle"], "lntrust+safe": ["#1f46c4", "rect"], "lntrust+best": ["#0a2458", "diamond"],
};
const isOurs = (method) => method === "lntrust" || method.startsWith("lntrust+");
const SPARE = ["#d55e00", "#009e73", "#cc79a7", "#e69f00", "#882255", "#56b4e9", "#999933", "#5b4fc0", "#44aa99", "#aa4499"];
const DASHES = ["solid", "dashed", "dotted"];
const SYMBOLS = ["circle", "rect", "triangle", "diamond"];
const HARM = "#d55e00";
const KINDS = ["#0072b2", "#b8561b", "#00795a", "#8a3f78", "#6b7280", "#8c6a00"];
const CLASSES = ["#ddcc77", "#117733", "#44aa99", "#777777", "#aa4499", "#999933", "#e69f00", "#cc6677", "#88ccee", "#332288"];

function mixed(colour, other, share) {
  const parts = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const [a, b] = [parts(colour), parts(other)];
  return "#" + a.map((value, i) => Math.round(value + (b[i] - value) * share).toString(16).padStart(2, "0")).join("");
}

/** Dark colours are lifted on a dark page, so that they stand out as they do on a light one. */
function shown(colour) {
  if (!Theme.dark) return colour;
  if (colour === METHODS["lntrust+best"][0]) return "#d3e2ff";
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  const light = 0.3 * r + 0.6 * g + 0.1 * b;
  return light < 0.62 ? mixed(colour, "#ffffff", Math.min(0.45, (0.62 - light) * 0.9)) : colour;
}

function classColour(index, count) {
  if (count <= CLASSES.length) return shown(CLASSES[index]);
  // So many that no palette holds them: around the circle, neighbours apart by lightness.
  const colour = `hsl(${Math.round((index * 360) / count)} 55% ${[42, 60, 50][index % 3]}%)`;
  return colour;
}

function methodColour(method) {
  if (METHODS[method]) return METHODS[method][0];
  let sum = 0; // a method of someone's own: always the same, by its name
  for (const letter of method) sum = (sum * 31 + letter.codePointAt(0)) % 9973;
  return SPARE[sum % SPARE.length];
}

/**
 * How each row of a section looks. One row of a method is the method itself: its main row, else its last. Others of
 * the same method are variants: along an axis they go from light to dark, else they take colours that are free.
 */
function stylesOf(section) {
  const rows = section.rows, used = new Set(rows.map((row) => methodColour(row.method)));
  const free = SPARE.filter((colour) => !used.has(colour));
  let taken = 0;
  return rows.map((row, index) => {
    const family = rows.filter((each) => each.method === row.method);
    const place = family.indexOf(row), base = methodColour(row.method);
    const symbol = family.length > 1 ? SYMBOLS[place % SYMBOLS.length] : (METHODS[row.method]?.[1] ?? SYMBOLS[index % 4]);
    const look = (colour, dash) => ({ colour: shown(colour), dash, symbol, width: isOurs(row.method) ? 2.6 : 1.7 });
    if (row.method === "independent") return { ...look(base, "dashed"), symbol: "rect" };
    const head = family.find((each) => each.main) ?? family.at(-1);
    if (row === head && row.x === null) return look(base, "solid");
    const varied = family.filter((each) => each.x !== null);
    if (row.x !== null && varied.length > 1) return look(mixed(base, "#b9dcf2", 1 - (varied.indexOf(row) + 1) / varied.length), "solid");
    if (family.length === 1) return look(base, "solid");
    const colour = free[taken % free.length] ?? base;
    return look(colour, DASHES[Math.floor(taken++ / free.length + 1) % 3]);
  });
}

/** A legend's picture of a line or a point. */
function swatch(style, line = true) {
  const picture = drawn("svg", { width: line ? 26 : 12, height: 12, viewBox: line ? "0 0 26 12" : "7 0 12 12", "aria-hidden": "true" });
  const dash = { dashed: "5 3", dotted: "1.5 3" }[style.dash];
  if (line) picture.append(drawn("line", { x1: 1, x2: 25, y1: 6, y2: 6, stroke: style.colour, "stroke-width": style.width ?? 2, ...(dash ? { "stroke-dasharray": dash } : {}) }));
  const shapes = { circle: "M13 2.5a3.5 3.5 0 1 0 .01 0z", rect: "M9.7 2.7h6.6v6.6h-6.6z", triangle: "M13 2l4.2 7.4h-8.4z", diamond: "M13 1.6l4.2 4.4-4.2 4.4-4.2-4.4z" };
  if (style.symbol && shapes[style.symbol]) {
    picture.append(drawn("path", { d: shapes[style.symbol], fill: style.hollow ? "none" : style.colour, stroke: style.colour, "stroke-width": style.hollow ? 1.5 : 0 }));
  }
  return picture;
}

/** The legend as buttons: they can be reached by keyboard, and wrap where a chart's own legend would be cut. */
function legendOf(box, entries, line = true) {
  const list = element("ul", { class: "legend" });
  for (const { name, style, fixed } of entries) {
    if (fixed) { list.append(element("li", {}, element("span", {}, swatch(style, line), name))); continue; }
    const button = element("button", { type: "button", "aria-pressed": "true", title: "show or hide" }, swatch(style, line), name);
    button.addEventListener("click", () => button.setAttribute("aria-pressed", String(Charts.toggle(box, name))));
    list.append(element("li", {}, button));
  }
  return list;
}
