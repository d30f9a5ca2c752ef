// What all parts of the page share: its data, elements, numbers, the theme, and when charts are drawn.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);

/** Nodes, one by one, and maps: deflated JSON in base64, since they are most of the page. */
async function unpacked() {
  const bytes = Uint8Array.from(atob(document.getElementById("packed").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// A row of a section: what the section says of it, and what its runs hold.
for (const section of DATA.sections) {
  section.rows = section.rows.map((row) => ({ ...DATA.rows[row.key], ...row }));
}

/** An element with text or elements in it. Text stays text: nothing here makes markup of a string. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** As in the tables: no zero before the point, and a true minus. */
const bare = (text) => text.replace(/^(-?)0\./, "$1.").replace(/^-/, "−");
const number = (value, digits = 3) => (value === null || value === undefined ? "–" : bare(value.toFixed(digits)));
/** At an axis: zero is but zero. */
const tick = (digits) => (value) => (value === 0 ? "0" : number(value, digits));
const short = (value) => bare(Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3))));

function humanBytes(count) {
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (count < 999.5 || unit === "TB") return `${Number(count.toPrecision(3))} ${unit}`;
    count /= 1000;
  }
}

// -- theme ------------------------------------------------------------------------------------------

const Theme = {
  system: window.matchMedia("(prefers-color-scheme: dark)"),
  get chosen() { return document.documentElement.dataset.theme ?? (this.system.matches ? "dark" : "light"); },
  get dark() { return this.chosen === "dark"; },
  colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); },
  set(value) {
    if (value) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
    Charts.redraw();
  },
};

// -- charts: drawn when they come into view, again when the theme or their width changes ---------------

const Charts = {
  known: new Map(), // element → { make, chart, off }
  onPaper: false,

  /**
   * `make` gives an ECharts option, `legend` its entries. `off`: names of series that the reader has switched off.
   * The legend is there before the chart is, so that nothing moves when the chart is drawn.
   */
  add(box, make, { legend = null, line = true, renderer = "svg" } = {}) {
    this.known.set(box, { make, legend, line, renderer, chart: null, off: new Set() });
    if (legend) putLegend(box, legend(), line);
    this.watch.observe(box);
  },

  draw(box) {
    const entry = this.known.get(box);
    if (!entry.chart) {
      // A canvas is made for sharp screens, and for paper.
      const sharp = entry.renderer === "canvas" ? { devicePixelRatio: Math.max(2, window.devicePixelRatio) } : {};
      entry.chart = echarts.init(box, null, { renderer: entry.renderer, ...sharp, ...(this.onPaper ? paperSize(box) : {}) });
      this.sizes.observe(box);
    }
    if (entry.legend) putLegend(box, entry.legend(), entry.line);
    const option = { ...baseOption(), ...entry.make() };
    const series = [...new Set((option.series ?? []).map((each) => each.name).filter(Boolean))];
    option.legend = { show: false, data: series, selected: Object.fromEntries([...entry.off].map((n) => [n, false])) };
    entry.chart.setOption(option, true);
    return entry.chart;
  },

  toggle(box, name) {
    const { off } = this.known.get(box);
    if (!off.delete(name)) off.add(name);
    this.refresh(box);
    return !off.has(name);
  },

  refresh(box) { if (this.known.get(box)?.chart) this.draw(box); },
  redraw() { for (const box of this.known.keys()) this.refresh(box); },
  all() { for (const box of this.known.keys()) this.draw(box); },

  /**
   * Every chart, at one size for paper. The style sheet scales it to the width that paper has, which is not known
   * here: for that a picture must say how large it is drawn.
   */
  toPaper() {
    this.onPaper = true;
    for (const [box, entry] of this.known) {
      const { width, height } = paperSize(box);
      entry.chart?.resize({ width, height });
      this.draw(box);
      box.querySelector("svg")?.setAttribute("viewBox", `0 0 ${width} ${height}`);
    }
  },

  toScreen() {
    this.onPaper = false;
    for (const [box, entry] of this.known) {
      box.querySelector("svg")?.removeAttribute("viewBox");
      if (box.clientWidth) entry.chart?.resize({ width: "auto", height: "auto" });
    }
    this.redraw();
  },

  watch: new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      Charts.watch.unobserve(target);
      Charts.draw(target);
    }
  }, { rootMargin: "250px" }),

  sizes: new ResizeObserver((entries) => {
    if (Charts.onPaper) return;
    for (const { target } of entries) {
      if (!target.clientWidth) continue;
      const { chart, renderer } = Charts.known.get(target);
      chart.resize({ width: "auto", height: "auto" });
      if (renderer === "canvas") Charts.draw(target); // what it shows is by its width
    }
  }),
};

function paperSize(box) {
  if (box.id === "map") return { width: 860, height: Math.round(860 / Maps.ratio) };
  return box.classList.contains("small") ? { width: 400, height: 170 } : { width: 430, height: 240 };
}

/** What every chart has: fonts, colours, no animation, a tooltip that stays inside, words for screen readers. */
function baseOption() {
  return {
    animation: false,
    backgroundColor: "transparent",
    textStyle: { fontFamily: Theme.colour("sans") || "sans-serif", color: Theme.colour("ink") },
    aria: { enabled: true },
    grid: { left: 24, right: 20, top: 14, bottom: 34, containLabel: true },
    tooltip: {
      confine: true,
      backgroundColor: Theme.colour("surface"),
      borderColor: Theme.colour("line"),
      textStyle: { color: Theme.colour("ink"), fontSize: 12 },
    },
  };
}

function axis(name, more = {}) {
  const muted = Theme.colour("muted"), line = Theme.colour("line");
  return {
    name, nameLocation: "middle", nameGap: 28, nameTextStyle: { color: muted, fontSize: 12 },
    axisLabel: { color: muted, fontSize: 11, hideOverlap: true, ...more.axisLabel },
    axisLine: { show: true, lineStyle: { color: line } },
    axisTick: { show: false },
    splitLine: { show: true, lineStyle: { color: line, opacity: 0.7 } },
    minorSplitLine: { show: false },
    ...Object.fromEntries(Object.entries(more).filter(([key]) => key !== "axisLabel")),
  };
}

/** An axis for accuracies that leaves no half of the chart empty. */
function accuracyAxis(name, values, more = {}) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const low = Math.min(...known), high = Math.max(...known), room = Math.max((high - low) * 0.06, 0.004);
  const step = high - low > 0.25 ? 0.1 : high - low > 0.1 ? 0.05 : high - low > 0.04 ? 0.02 : 0.01;
  const min = Math.max(0, Math.floor((low - room) / step) * step), max = Math.min(1, Math.ceil((high + room) / step) * step);
  return axis(name, {
    type: "value", min: Number(min.toFixed(3)), max: Number(max.toFixed(3)), interval: step * (max - min > 6.5 * step ? 2 : 1),
    nameGap: 34, ...more, axisLabel: { formatter: tick(2), ...more.axisLabel },
  });
}

/** A tooltip of lines: a heading, then pairs of text. Returned as an element, so that names stay text. */
function tip(heading, pairs) {
  const rows = pairs.map(([key, value]) =>
    element("div", { style: "display:flex;gap:1.2em;justify-content:space-between" },
      element("span", {}, key), element("strong", {}, value)));
  return element("div", { style: "max-width:18rem;white-space:normal" }, element("div", { style: "font-weight:600" }, heading), ...rows);
}

// -- controls -----------------------------------------------------------------------------------------

/** Buttons of which one is pressed. */
function choice(label, options, chosen, change) {
  const group = element("span", { class: "buttons", role: "group", "aria-label": label });
  for (const [value, text] of options) {
    const button = element("button", { type: "button", "aria-pressed": value === chosen }, text);
    button.setAttribute("aria-pressed", String(value === chosen));
    button.addEventListener("click", () => {
      for (const each of group.children) each.setAttribute("aria-pressed", String(each === button));
      change(value);
    });
    group.append(button);
  }
  return group;
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  if (chosen !== undefined) select.value = String(chosen);
}

function selector(label, options, chosen, change) {
  const select = element("select");
  fill(select, options, chosen);
  select.addEventListener("change", () => change(select.value));
  return element("label", {}, label, select);
}
