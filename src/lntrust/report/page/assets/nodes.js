// The graph of a run of LNTrust: who trusts whom, and all there is to know about one node.
"use strict";

const Nodes = {
  chosen: { name: null, seed: null, node: 0 },
  get run() {
    return DATA.graphs.runs.find((run) => run.name === this.chosen.name && run.seed === this.chosen.seed);
  },
  get world() { return DATA.graphs.worlds[this.run.world]; },

  start() {
    const { runs } = DATA.graphs;
    if (!document.getElementById("nodes")) return;
    const select = (name) => document.getElementById(`${name}-choice`);
    this.selects = { run: select("run"), seed: select("seed"), node: select("node") };
    fill(this.selects.run, [...new Set(runs.map((run) => run.name))].map((name) => [name, name]));
    this.selects.run.addEventListener("change", () => this.show({ name: this.selects.run.value }));
    this.selects.seed.addEventListener("change", () => this.show({ seed: Number(this.selects.seed.value) }));
    this.selects.node.addEventListener("change", () => this.show({ node: Number(this.selects.node.value) }));
    const legend = () => [["trained on", METHODS.lntrust[0]], ["validation", "#e69f00"]]
      .map(([name, colour]) => ({ name, style: { colour: shown(colour), symbol: "rect" }, fixed: true }));
    Charts.add(document.getElementById("node-classes"), () => this.classes(), { legend, line: false });
    Charts.add(document.getElementById("node-gate"), () => this.gate());
    this.show({ name: runs[0].name, seed: runs[0].seed });
    new ResizeObserver(() => { if (!Charts.onPaper && Math.abs(this.shape() - this.drawnShape) > 0.02) { this.draw(); this.mark(); } }).observe(document.getElementById("graph"));
  },

  /** Show another run, seed or node; what is not said stays, as far as it exists there. */
  show(wanted) {
    Object.assign(this.chosen, wanted);
    const seeds = DATA.graphs.runs.filter((run) => run.name === this.chosen.name).map((run) => run.seed);
    if (!seeds.includes(this.chosen.seed)) this.chosen.seed = seeds[0];
    const { kinds, learners } = this.world;
    if (this.chosen.node >= kinds.length) this.chosen.node = 0;
    this.selects.run.value = this.chosen.name;
    fill(this.selects.seed, seeds.map((seed) => [seed, seed]), this.chosen.seed);
    if (!("node" in wanted) || Object.keys(wanted).length > 1) {
      fill(this.selects.node, kinds.map((kind, i) => [i, `${i} (${learners[kind]})`]), this.chosen.node);
      this.draw();
    }
    this.selects.node.value = String(this.chosen.node);
    this.mark();
    this.tell();
  },

  // -- the picture -----------------------------------------------------------------------------------

  /** How high the picture's box is, for its width. */
  shape() {
    const { clientWidth, clientHeight } = document.getElementById("graph");
    return clientWidth ? Math.min(Math.max(clientHeight / clientWidth, 0.45), 1.3) : 0.7;
  },

  /** Where nodes are drawn. Places on the earth keep their proportions; others mean nothing, and fill the box. */
  laidOut() {
    const { places, on_earth: onEarth } = this.world;
    const wide = Math.max(...places.map((place) => place[0]), 1), high = Math.max(...places.map((place) => place[1]), 1);
    if (onEarth) return { places, wide, high };
    const room = 1090 * this.shape() - 90, stretch = [1000 / wide, room / high];
    // A line of nodes stays one: nothing is stretched without end.
    const [x, y] = stretch.map((factor) => Math.min(factor, 3 * Math.min(...stretch)));
    return { places: places.map((place) => [place[0] * x, place[1] * y]), wide: wide * x, high: high * y };
  },

  radius(node) {
    const sizes = this.sizes, most = Math.max(...sizes);
    const [least, room] = sizes.length > 60 ? [12, 9] : [15, 13];
    return this.scale * (least + room * Math.sqrt(sizes[node] / most));
  },

  draw() {
    const { edges, kinds, learners, train, validation, on_earth: onEarth } = this.world, run = this.run;
    this.drawnShape = this.shape();
    const { places, wide, high } = this.laidOut();
    this.places = places;
    const sum = (row) => row.reduce((a, b) => a + b, 0);
    this.sizes = train.map((row, i) => sum(row) + sum(validation[i]));
    // On a narrow screen nodes are drawn larger, to be read and touched.
    this.scale = Math.min(1.55, Math.max(1, 520 / (document.getElementById("graph").clientWidth || 700)));
    const picture = drawn("svg", { viewBox: `-45 -45 ${wide + 90} ${high + 90}`, role: "group", "aria-label": "Graph of the nodes" });
    const lines = drawn("g");
    for (const [a, b] of edges) lines.append(drawn("line", { class: "edge", x1: places[a][0], y1: places[a][1], x2: places[b][0], y2: places[b][1] }));
    this.arrows = drawn("g");
    const dots = drawn("g");
    this.dots = places.map(([x, y], i) => {
      const alone = run.together[i].at(-1) === "0";
      const dot = drawn("g", { class: `node${alone ? " alone" : ""}`, "data-node": i, transform: `translate(${x} ${y})` },
        drawn("title", {}, `Node ${i}, ${learners[kinds[i]]}`),
        drawn("path", { d: shapeOf(kinds[i], this.radius(i)), fill: KINDS[kinds[i] % KINDS.length] }),
        drawn("text", { "font-size": ((places.length > 60 ? 15 : 17.5) * this.scale).toFixed(1) }, String(i)));
      dot.addEventListener("click", () => this.show({ node: i }));
      dots.append(dot);
      return dot;
    });
    picture.append(lines, this.arrows, dots);
    document.getElementById("graph").replaceChildren(picture);
    const kindsHere = [...new Set(kinds)].sort((a, b) => a - b);
    const picture_ = (kind) => drawn("svg", { width: 14, height: 14, viewBox: "-8 -8 16 16", "aria-hidden": "true" }, drawn("path", { d: shapeOf(kind, 6.4), fill: KINDS[kind % KINDS.length] }));
    document.getElementById("graph-legend").replaceChildren(...kindsHere.map((kind) =>
      element("li", {}, element("span", {}, picture_(kind), `${learners[kind]} (${kinds.filter((each) => each === kind).length})`))));
    document.getElementById("graph-note").textContent =
      `${kinds.length} nodes, ${edges.length} edges${onEarth ? ", at their true places" : ""}. Area by labelled examples. Dashed outline: answers alone. ` +
      `Arrows go to the chosen node from those it trusts, after the last refresh; weights below .005 have none.`;
  },

  /** Arrows to the chosen node, the way answers flow; who is no neighbour steps back. */
  mark() {
    const { places } = this, me = this.chosen.node, members = this.run.members[me];
    const near = new Set(members.map(([j]) => j));
    this.dots.forEach((dot, i) => {
      dot.classList.toggle("chosen", i === me);
      dot.classList.toggle("far", i !== me && !near.has(i));
    });
    this.arrows.replaceChildren();
    for (const [j, weight] of members) {
      if (j === me || weight < 0.005) continue;
      const [from, to] = [places[j], places[me]], length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
      const step = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
      const half = 1 + 7 * weight, head = 9 + half, begin = this.radius(j) + 2, tip = Math.max(length - this.radius(me) - 3, begin + head);
      // Along the way from j to me, and across it: a shaft, then a head that stays wider than the shaft.
      const point = (along, across) => `${(from[0] + step[0] * along - step[1] * across).toFixed(1)} ${(from[1] + step[1] * along + step[0] * across).toFixed(1)}`;
      const neck = tip - 1.5 * head;
      const outline = [[begin, half], [neck, half], [neck, head], [tip, 0], [neck, -head], [neck, -half], [begin, -half]];
      this.arrows.append(drawn("path", { class: "arrow", "data-from": j, d: `M${outline.map(([along, across]) => point(along, across)).join("L")}z`, opacity: (0.45 + 0.5 * weight).toFixed(2) }));
    }
  },

  // -- one node's numbers ----------------------------------------------------------------------------

  tell() {
    const me = this.chosen.node, run = this.run, { kinds, learners, test } = this.world, { scores } = run;
    document.getElementById("gate-title").textContent =
      run.rounds.length > 1 ? "Its gate, refresh by refresh" : "Its gate after the last refresh; earlier ones were not kept";
    document.getElementById("node-name").textContent = `Node ${me}: ${learners[kinds[me]]}`;
    const own = run.members[me].find(([j]) => j === me);
    const together = run.together[me].at(-1) === "1";
    const tiles = [
      ["Test", number(scores.test?.[me])], ["Self", number(scores.self?.[me])],
      ...(scores.test_pooled ? [["Test, pooled", number(scores.test_pooled[me])], ["Self, pooled", number(scores.self_pooled[me])]] : []),
      ["answers", together ? "together" : "alone"], ["trusts itself", own ? number(own[1]) : "–"],
      ["λ", number(run.lambda[me].at(-1))], ["neighbours", String(run.members[me].filter(([j]) => j !== me).length)],
      ["labels", String(this.sizes[me])], ["tested on", String(test[me])],
    ];
    document.getElementById("node-tiles").replaceChildren(...tiles.map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", { "data-tile": name }, value))));
    this.table();
    Charts.refresh(document.getElementById("node-classes"));
    Charts.refresh(document.getElementById("node-gate"));
  },

  table() {
    const me = this.chosen.node, run = this.run, { kinds, learners } = this.world;
    const table = document.getElementById("node-members");
    table.caption.textContent = `Node ${me} and its neighbours: trust after the last refresh, and the six features it rests on`;
    const names = ["member", "model", "trust", "trusts back", ...DATA.graphs.features];
    table.tHead.replaceChildren(element("tr", {}, ...names.map((name, i) => element("th", { scope: "col", class: ["label", "words", "words"][i] }, name))));
    const rows = run.members[me].slice().sort((a, b) => b[1] - a[1]).map(([j, weight, ...features]) => {
      const back = run.members[j].find(([k]) => k === me);
      const bar = element("span", { class: "bar", style: `width:${(weight * 5).toFixed(2)}rem` });
      return element("tr", { "data-member": j },
        element("th", { scope: "row", class: "label" }, element("span", { class: "name" }, j === me ? `${j} (itself)` : String(j))),
        element("td", { class: "words" }, learners[kinds[j]]),
        element("td", { class: "weight" }, bar, number(weight)),
        element("td", {}, j === me || !back ? "–" : number(back[1])),
        ...features.map((value) => element("td", {}, number(value))));
    });
    table.tBodies[0].replaceChildren(...rows);
  },

  classes() {
    const me = this.chosen.node, { classes, train, validation } = this.world, many = classes.length > 20;
    const looks = [["trained on", train[me], shown(METHODS.lntrust[0])], ["validation", validation[me], shown("#e69f00")]];
    const bars = ([name, data, colour]) => ({ name, type: "bar", stack: "all", data, itemStyle: { color: colour }, barCategoryGap: many ? "10%" : "25%" });
    return {
      grid: { left: 8, right: 8, top: 8, bottom: 4, containLabel: true },
      xAxis: axis("", { type: "category", data: classes, splitLine: { show: false }, axisLabel: many ? { show: false } : { rotate: classes.some((name) => name.length > 3) ? 35 : 0, interval: 0, hideOverlap: false, fontSize: 10, width: 74, overflow: "truncate" } }),
      yAxis: axis("", { type: "value", minInterval: 1, splitNumber: 3 }),
      series: looks.map(bars),
      tooltip: { ...baseOption().tooltip, trigger: "axis", formatter: (hits) => tip(classes[hits[0].dataIndex], hits.map((hit) => [hit.seriesName, String(hit.value)])) },
      aria: described(`Node ${me}: ` + classes.map((name, c) => [name, train[me][c] + validation[me][c]]).filter(([, count]) => count).map(([name, count]) => `${count} ${name}`).join(", ")),
    };
  },

  gate() {
    const me = this.chosen.node, { rounds, together } = this.run, lambda = this.run.lambda[me], colour = shown(METHODS.lntrust[0]);
    return {
      grid: { left: 8, right: 14, top: 10, bottom: 26, containLabel: true },
      xAxis: axis("round of Stage 2", { type: "value", min: 0, max: Math.max(rounds.at(-1), 1), nameGap: 24, splitLine: { show: false } }),
      yAxis: axis("", { type: "value", min: 0, max: Number((this.run.lambda.flat().reduce((a, b) => Math.max(a, b), 0.1) * 1.1).toFixed(1)), splitNumber: 3, axisLabel: { formatter: tick(1) } }),
      series: [{
        name: "λ", type: "line", step: "end", lineStyle: { color: colour, width: 2 }, symbol: "circle", symbolSize: 9,
        data: rounds.map((round, k) => ({ value: [round, lambda[k]], itemStyle: { color: together[me][k] === "1" ? colour : Theme.colour("surface"), borderColor: colour, borderWidth: 2 } })),
      }],
      tooltip: { ...baseOption().tooltip, formatter: (at) => tip(`Refresh at round ${at.value[0]}`, [["λ", number(at.value[1])], ["answers", together[me][at.dataIndex] === "1" ? "together" : "alone"]]) },
      aria: described(`Node ${me}: λ by refresh: ` + rounds.map((round, k) => `round ${round} ${number(lambda[k])}${together[me][k] === "1" ? ", together" : ", alone"}`).join("; ")),
    };
  },
};

/** A kind of learner has a shape, so that colour alone need not tell it. */
function shapeOf(kind, r) {
  const around = (count, turn) => Array.from({ length: count }, (_, k) => {
    const angle = ((k + turn) * 2 * Math.PI) / count;
    return `${(r * 1.12 * Math.sin(angle)).toFixed(1)} ${(-r * 1.12 * Math.cos(angle)).toFixed(1)}`;
  });
  const shapes = [() => `M0 ${-r}a${r} ${r} 0 1 1 -.01 0z`, () => `M${around(4, 0.5).join("L")}z`, () => `M${around(6, 0).join("L")}z`, () => `M${around(4, 0).join("L")}z`, () => `M${around(3, 0).join("L")}z`, () => `M${around(5, 0).join("L")}z`];
  return shapes[kind % shapes.length]();
}
