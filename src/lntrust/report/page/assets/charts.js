// The charts of a section. Each function takes the section's data and its box, adds controls, and says how to draw.
"use strict";

/** Before the box, or in place of the legend that was there: colours change with the theme. */
function putLegend(box, entries, line) {
  const fresh = legendOf(box, entries, line), old = box.parentElement.querySelector(".legend");
  const { off } = Charts.known.get(box);
  fresh.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(!off.has(button.textContent))));
  // A reader who has just used a button must not lose their place.
  const at = old ? [...old.querySelectorAll("button")].indexOf(document.activeElement) : -1;
  if (old) old.replaceWith(fresh); else box.before(fresh);
  if (at >= 0) fresh.querySelectorAll("button")[at]?.focus();
}

/** A legend of a section's rows. */
const rowsLegend = (section) => () => {
  const styles = stylesOf(section);
  return section.rows.map((row, i) => ({ name: row.label, style: styles[i] }));
};

const controlsOf = (box) => box.closest("figure").querySelector(".controls");

function lineSeries(row, style, data) {
  const few = data.length <= 12;
  return {
    name: row.label, type: "line", data, symbol: style.symbol, symbolSize: few ? 7 : 6, showSymbol: true,
    // Of many points only some are marked, and always the last.
    showAllSymbol: false,
    lineStyle: { width: style.width, type: style.dash, color: style.colour },
    itemStyle: { color: style.colour }, emphasis: { focus: "series" },
    z: isOurs(row.method) ? 4 : 3,
    ...(few ? {} : { symbol: (value, at) => (at.dataIndex === data.length - 1 || at.dataIndex % Math.ceil(data.length / 8) === 0 ? style.symbol : "none") }),
  };
}

const KIND = {
  bytes(section, box) {
    const rows = section.rows.map((row, i) => ({ row, i })).filter(({ row }) => row.curve.round.length);
    let counted = "total";
    if (rows.some(({ row }) => row.gb.answers > 0)) {
      controlsOf(box).append(choice("Which bytes count", [["total", "everything sent"], ["answers", "without queries"]], counted, (value) => {
        counted = value;
        Charts.refresh(box);
      }));
    }
    // The course of what is not a query is not stored: its end is.
    const points = ({ curve, gb }) => (counted === "total" ? curve.gb.map((sent, k) => [sent * 1e9, curve.test[k]]) : [[gb.answers * 1e9, curve.test.at(-1)]]).filter(([bytes]) => bytes > 0);
    Charts.add(box, () => {
      const styles = stylesOf(section);
      // Both countings have the same axis: what moves to the left sends mostly queries.
      const sent = rows.flatMap(({ row }) => [...row.curve.gb, row.gb.answers]).filter((gb) => gb > 0);
      const low = Math.min(...sent) * 1e9, high = Math.max(...sent) * 1e9;
      const ends = [10 ** Math.floor(Math.log10(low * 0.999)), 10 ** Math.ceil(Math.log10(high * 1.001))];
      const series = rows.map(({ row, i }) => {
        const found = points(row);
        if (found.length || row.gb.total > 0) return lineSeries(row, styles[i], found);
        const level = row.curve.test.at(-1);
        return { ...lineSeries(row, { ...styles[i], dash: "dashed" }, ends.map((end) => [end, level])), symbol: "none" };
      });
      const values = rows.flatMap(({ row }) => row.curve.test.filter((_, k) => row.curve.gb[k] > 0 || k === row.curve.test.length - 1));
      return {
        series: series.map((each) => (counted === "total" ? each : { ...each, symbolSize: 11 })),
        xAxis: axis("sent per node", { type: "log", min: ends[0], max: ends[1], axisLabel: { formatter: humanBytes } }),
        yAxis: accuracyAxis("Test", values),
        tooltip: { ...baseOption().tooltip, trigger: "item", formatter: (at) => tip(at.seriesName, [[counted === "total" ? "sent per node" : "but for queries", humanBytes(at.value[0])], ["Test", number(at.value[1])]]) },
        aria: described(`Test accuracy against bytes sent per node, ${rows.length} methods`),
      };
    }, { legend: () => rowsLegend(section)().filter((_, i) => rows.some((each) => each.i === i)) });
  },

  per_gb(section, box) {
    let counted = "payload";
    controlsOf(box).append(choice("Which bytes count", [["payload", "as the paper counts"], ["total", "all bytes"]], counted, (value) => {
      counted = value;
      Charts.refresh(box);
    }));
    const sent = (row) => (counted === "total" ? row.gb.total : row.gb.reply + row.gb.parameters + row.gb.anchors);
    Charts.add(box, () => {
      const styles = stylesOf(section);
      const bars = section.rows.map((row, i) => ({ row, style: styles[i], value: sent(row) > 0 && row.test ? row.test[0] / sent(row) : null }))
        .filter((bar) => bar.value !== null).sort((a, b) => a.value - b.value);
      const low = Math.min(...bars.map((bar) => bar.value)), high = Math.max(...bars.map((bar) => bar.value));
      return {
        grid: { left: 128, right: 62, top: 6, bottom: 52 },
        xAxis: axis("Test per GB", { type: "log", min: 10 ** (Math.ceil(Math.log10(low)) - 1), max: Math.max(high * 1.6, 10 ** Math.ceil(Math.log10(low))), axisLabel: { formatter: (value) => (Number.isInteger(Number(Math.log10(value).toFixed(6))) ? short(value) : "") } }),
        yAxis: axis("", { type: "category", data: bars.map((bar) => bar.row.label), splitLine: { show: false }, axisLabel: { width: 118, overflow: "break", lineHeight: 13, hideOverlap: false, interval: 0 } }),
        series: [{
          type: "bar", barMaxWidth: 20, data: bars.map((bar) => ({ value: bar.value, itemStyle: { color: bar.style.colour, borderRadius: [0, 3, 3, 0] } })),
          label: { show: true, position: "right", color: Theme.colour("ink"), fontSize: 11, formatter: (at) => short(at.value) },
        }],
        tooltip: { ...baseOption().tooltip, formatter: (at) => {
          const { row } = bars[at.dataIndex];
          return tip(row.label, [["Test", number(row.test[0])], ["GB per node", short(sent(row))], ["Test per GB", short(at.value)]]);
        } },
        aria: described("Accuracy per gigabyte: " + bars.slice().reverse().map((bar) => `${bar.row.label} ${short(bar.value)}`).join(", ")),
      };
    });
  },

  curves(section, box) {
    let score = "test";
    controlsOf(box).append(choice("Score", [["test", "Test"], ["self", "Self"]], score, (value) => {
      score = value;
      Charts.refresh(box);
    }));
    Charts.add(box, () => {
      const styles = stylesOf(section);
      const series = section.rows.map((row, i) => lineSeries(row, styles[i], row.curve.round.map((round, k) => [round, row.curve[score][k]])));
      // What a model knows before it has learned anything would squeeze all the rest into a corner.
      const values = section.rows.flatMap((row) => row.curve[score].slice(Math.floor(row.curve[score].length / 8)));
      return {
        series: series.map((each) => ({ ...each, clip: true })),
        xAxis: axis("round", { type: "value", min: 0, max: Math.max(...section.rows.map((row) => row.curve.round.at(-1) ?? 0)) }),
        yAxis: accuracyAxis(score === "test" ? "Test" : "Self", values),
        tooltip: { ...baseOption().tooltip, trigger: "item", formatter: (at) => tip(at.seriesName, [["round", at.value[0]], [score === "test" ? "Test" : "Self", number(at.value[1])]]) },
        aria: described(`${score === "test" ? "Test" : "Self"} by round, ${section.rows.length} methods`),
      };
    }, { legend: rowsLegend(section) });
  },

  ablation(section, box) {
    const rows = section.rows.filter((row) => row.x !== null).sort((a, b) => a.x - b.x);
    const others = section.rows.filter((row) => row.x === null);
    const gaps = rows.slice(1).map((row, i) => row.x - rows[i].x), span = rows.at(-1).x - rows[0].x;
    const even = Math.min(...gaps) >= span / 14; // else places would run into each other: one step each
    const at = (row) => (even ? row.x : rows.indexOf(row));
    const spread = even ? span * 0.06 : 0.4, ends = [(even ? rows[0].x : 0) - spread, (even ? rows.at(-1).x : rows.length - 1) + spread];
    const parts = () => {
      const looks = { test: { colour: shown(METHODS.lntrust[0]), symbol: "circle", dash: "solid", width: 2.6 }, self: { colour: shown("#e69f00"), symbol: "rect", dash: "solid", width: 2.2 } };
      const series = [], legend = []; // Test and Self stand a little aside of each other, so that their bars can be told apart
      for (const [score, title] of [["test", "Test"], ["self", "Self"]]) {
        const known = rows.filter((row) => row[score]), aside = (score === "test" ? -1 : 1) * (ends[1] - ends[0]) * 0.006;
        series.push({ ...lineSeries({ label: title, method: "lntrust" }, looks[score], known.map((row) => [at(row) + aside, row[score][0]])), symbolSize: 9 });
        series.push(whiskers(title, known.map((row) => [at(row) + aside, ...row[score]]), looks[score].colour));
        legend.push({ name: title, style: looks[score] });
        const printed = rows.filter((row) => row.paper[score] !== undefined);
        if (printed.length) {
          const style = { ...looks[score], dash: "dotted", width: 1.5, hollow: true }, name = `${title}, the paper`;
          series.push({ ...lineSeries({ label: name, method: "" }, style, printed.map((row) => [at(row), row.paper[score]])), symbolSize: 9, itemStyle: { color: Theme.colour("surface"), borderColor: style.colour, borderWidth: 1.6 } });
          legend.push({ name, style });
        }
      }
      others.filter((row) => row.test).forEach((row, i) => {
        const style = { colour: row.method === "independent" ? shown(methodColour("independent")) : shown(SPARE[i + 1]), dash: "dashed", width: 1.6, symbol: "none" };
        series.push({ ...lineSeries({ label: row.label, method: "" }, style, ends.map((end) => [end, row.test[0]])), symbol: "none" });
        legend.push({ name: row.label, style });
      });
      return { series, legend };
    };
    Charts.add(box, () => {
      const { series } = parts();
      const values = series.flatMap((each) => each.data.flatMap((point) => (point.length === 3 ? [point[1] - point[2], point[1] + point[2]] : [point[1]])));
      return {
        series,
        xAxis: axis(section.x, { type: "value", min: ends[0], max: ends[1], splitLine: { show: false }, axisLabel: { customValues: rows.map(at), formatter: (value) => String(even ? Number(value.toPrecision(6)) : rows[Math.round(value)]?.x ?? "") }, axisTick: { show: true, customValues: rows.map(at), lineStyle: { color: Theme.colour("line") } } }),
        yAxis: accuracyAxis("accuracy", values),
        tooltip: { ...baseOption().tooltip, trigger: "item", formatter: (hit) => {
          const row = rows.find((each) => Math.abs(at(each) - hit.value[0]) < (ends[1] - ends[0]) * 0.01);
          return tip(hit.seriesName, [[row ? row.label : "level", number(hit.value[1])]]);
        } },
        aria: described(`Over ${section.x}: ` + rows.map((row) => `${row.label}, Test ${number(row.test?.[0])}, Self ${number(row.self?.[0])}`).join("; ")),
      };
    }, { legend: () => parts().legend });
  },

  scatter(section, box) {
    const able = section.rows.map((row, i) => [i, row]).filter(([, row]) => row.nodes);
    let chosen = (able.find(([, row]) => row.main) ?? able.at(-1))[0];
    controlsOf(box).append(selector("", able.map(([i, row]) => [i, row.label]), chosen, (value) => {
      chosen = Number(value);
      Charts.refresh(box);
    }));
    box.closest("figure").querySelector("select").setAttribute("aria-label", "Method");
    const parts = () => {
      const row = section.rows[chosen], style = stylesOf(section)[chosen];
      const points = row.nodes.ours.flatMap((seed, s) => seed.map((value, node) => [DATA.alone[row.alone][s][node], value, node, row.seeds[s]]))
        .filter(([x, y]) => x !== null && y !== null);
      const sides = [
        ["higher", points.filter(([x, y]) => y > x), style.colour, "circle"],
        ["level", points.filter(([x, y]) => y === x), Theme.colour("muted"), "rect"],
        ["lower", points.filter(([x, y]) => y < x), shown(HARM), "diamond"],
      ];
      return { row, points, sides };
    };
    const legend = () => parts().sides.map(([side, data, colour, symbol]) => ({ name: `${side}: ${data.length}`, style: { colour, symbol }, fixed: true }));
    Charts.add(box, () => {
      const { row, points, sides } = parts();
      const series = sides.map(([side, data, colour, symbol]) => ({ name: `${side}: ${data.length}`, type: "scatter", data, symbol, symbolSize: 8, itemStyle: { color: colour, opacity: 0.72 } }));
      const values = points.flatMap(([x, y]) => [x, y]), low = values.reduce((a, b) => Math.min(a, b), 1), high = values.reduce((a, b) => Math.max(a, b), 0);
      const ends = [Math.max(0, Math.floor(low * 20) / 20), Math.min(1, Math.ceil(high * 20) / 20)];
      const same = { type: "value", min: ends[0], max: ends[1], axisLabel: { formatter: tick(2) } };
      return {
        series: [...series, { type: "line", data: [[ends[0], ends[0]], [ends[1], ends[1]]], symbol: "none", silent: true, lineStyle: { color: Theme.colour("muted"), width: 1, type: "dashed" }, tooltip: { show: false } }],
        xAxis: axis(`Independent, ${row.nodes.score}`, same),
        yAxis: axis(`${row.label.length > 26 ? row.label.slice(0, 25) + "…" : row.label}, ${row.nodes.score}`, { ...same, nameGap: 34 }),
        tooltip: { ...baseOption().tooltip, formatter: (at) => tip(`Node ${at.value[2]}, seed ${at.value[3]}`, [[row.label, number(at.value[1])], ["Independent", number(at.value[0])]]) },
        aria: described(`Each node's score under ${row.label} against Independent: ${sides.map(([side, data]) => `${data.length} ${side}`).join(", ")}`),
      };
    }, { legend, line: false });
  },

  importance(section, box) {
    const able = section.rows.map((row, i) => [i, row]).filter(([, row]) => row.importance);
    let chosen = (able.find(([, row]) => row.main) ?? able.at(-1))[0];
    if (able.length > 1) {
      controlsOf(box).append(selector("", able.map(([i, row]) => [i, row.label]), chosen, (value) => {
        chosen = Number(value);
        Charts.refresh(box);
      }));
      box.closest("figure").querySelector("select").setAttribute("aria-label", "Row");
    }
    Charts.add(box, () => {
      const row = section.rows[chosen], colour = shown(METHODS.lntrust[0]);
      const bars = Object.entries(row.importance).sort((a, b) => a[1][0] - b[1][0]);
      return {
        grid: { left: 118, right: 62, top: 6, bottom: 52 },
        xAxis: axis("rise of the validation loss", { type: "value", max: ({ max }) => Math.max(max, ...bars.map(([, [mean, std]]) => mean + std)), axisLabel: { formatter: short } }),
        yAxis: axis("", { type: "category", data: bars.map(([name]) => name), splitLine: { show: false }, axisLabel: { width: 106, overflow: "break", lineHeight: 13, hideOverlap: false } }),
        series: [
          { name: row.label, type: "bar", barMaxWidth: 22, data: bars.map(([, [mean]]) => mean), itemStyle: { color: colour, borderRadius: [0, 3, 3, 0] } },
          whiskers(row.label, bars.map(([, [mean, std]], i) => [i, mean, std]), Theme.colour("ink"), true),
        ],
        tooltip: { ...baseOption().tooltip, formatter: (at) => tip(bars[at.dataIndex][0], [["mean", short(bars[at.dataIndex][1][0])], ["± ", short(bars[at.dataIndex][1][1])]]) },
        aria: described("Permutation importance: " + bars.slice().reverse().map(([name, [mean]]) => `${name} ${short(mean)}`).join(", ")),
      };
    });
  },
};

function described(text) {
  return { enabled: true, label: { description: text } };
}

/** Lines from mean − deviation to mean + deviation; lying ones have the mean written after them. */
function whiskers(name, points, colour, lying = false) {
  return {
    name, type: "custom", data: points, silent: true, z: 5, tooltip: { show: false }, itemStyle: { color: colour },
    encode: lying ? { x: 1, y: 0 } : { x: 0, y: 1 },
    renderItem: (_, api) => {
      const [place, mean, deviation] = [0, 1, 2].map((i) => api.value(i));
      const [a, b] = [mean - deviation, mean + deviation].map((value) => api.coord(lying ? [value, place] : [place, value]));
      const cap = 4, across = lying ? [[0, -cap], [0, cap]] : [[-cap, 0], [cap, 0]];
      const text = { type: "text", x: Math.max(a[0], b[0]) + 7, y: a[1], style: { text: short(mean), fill: colour, fontSize: 11, fontFamily: Theme.colour("sans"), align: "left", verticalAlign: "middle" } };
      if (!deviation) return lying ? text : null;
      const line = (from, to) => ({ type: "line", shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, style: { stroke: colour, lineWidth: 1.4 } });
      const moved = (point, by) => [point[0] + by[0], point[1] + by[1]];
      return { type: "group", children: [line(a, b), ...[a, b].map((end) => line(moved(end, across[0]), moved(end, across[1]))), ...(lying ? [text] : [])] };
    },
  };
}
