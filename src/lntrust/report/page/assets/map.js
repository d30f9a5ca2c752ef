// Worlds that lie on the earth: land, tiles, regions and who knows whom, at their true places.
"use strict";

const Maps = {
  chosen: 0,
  zoom: 1,

  start() {
    const box = document.getElementById("map");
    if (!box) return;
    this.box = box;
    DATA.maps.forEach((map, i) => echarts.registerMap(`land-${i}`, landOf(map)));
    const which = document.getElementById("map-choice"), colour = document.getElementById("map-colour");
    fill(which, DATA.maps.map((map, i) => [i, map.study]), 0);
    document.getElementById("map-which").hidden = DATA.maps.length < 2;
    which.addEventListener("change", () => { this.chosen = Number(which.value); this.draw(1); });
    colour.addEventListener("change", () => this.draw(this.zoom));
    this.by = () => colour.value;
    this.name();
    document.getElementById("map-in").addEventListener("click", () => this.draw(Math.min(this.zoom * 1.6, 40)));
    document.getElementById("map-out").addEventListener("click", () => this.draw(Math.max(this.zoom / 1.6, 1)));
    document.getElementById("map-all").addEventListener("click", () => this.draw(1));
    // So many points are too many for SVG.
    Charts.add(box, () => this.option(), { renderer: "canvas", legend: () => this.legend(), line: false });
  },

  name() {
    const map = DATA.maps[this.chosen], [west, south, east, north] = map.window;
    // A degree of longitude is shorter than one of latitude; the box has the shape that is left.
    this.shrink = Math.cos(((south + north) / 2) * (Math.PI / 180));
    this.ratio = ((east - west) * this.shrink) / (north - south);
    this.box.style.aspectRatio = String(this.ratio);
    this.box.style.setProperty("--ratio", String(this.ratio));
    document.getElementById("map-title").textContent = `${map.study}, seed ${map.seed}: ${map.centres.length} regions, ${map.edges.length} edges`;
  },

  draw(zoom) {
    this.name();
    // Where the reader has dragged the map to is kept while they zoom.
    const now = Charts.known.get(this.box).chart?.getOption().geo?.[0];
    this.centre = zoom === 1 ? undefined : now?.center;
    this.zoom = zoom;
    Charts.refresh(this.box);
  },

  /** Classes; regions are too many to be named, and have their numbers on the map. */
  legend() {
    const { classes } = DATA.maps[this.chosen];
    if (this.by() !== "class") return [];
    return classes.map((name, i) => ({ name, style: { colour: classColour(i, classes.length), symbol: "rect" } }));
  },

  option() {
    const map = DATA.maps[this.chosen], { tiles, centres, owned, classes } = map;
    const [west, south, east, north] = map.window, byClass = this.by() === "class";
    const groups = new Map(); // what has one colour
    let at = 0;
    tiles.count.forEach((count, node) => {
      for (let k = 0; k < count; k += 1, at += 1) {
        const key = byClass ? tiles.class[at] : node;
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push([tiles.longitude[at] / map.per_degree, tiles.latitude[at] / map.per_degree]);
      }
    });
    const keys = [...groups.keys()].sort((a, b) => a - b);
    const name = (key) => (byClass ? classes[key] : `region ${key}`);
    const colour = (key) => (byClass ? classColour(key, classes.length) : shown(SPARE[key % SPARE.length]));
    // Where the map is small, so are its marks; they grow as it is enlarged, and have their numbers once those fit.
    const small = Math.min(1, Math.max(0.4, (Charts.known.get(this.box).chart.getWidth() / 760) * Math.sqrt(this.zoom)));
    const most = Math.max(...owned), ink = Theme.colour("ink"), surface = Theme.colour("surface");
    return {
      backgroundColor: Theme.colour("sea"), // on paper a canvas is not transparent
      geo: {
        map: `land-${this.chosen}`, boundingCoords: [[west, north], [east, south]], aspectScale: this.shrink, preserveAspect: true, left: 0, right: 0, top: 0, bottom: 0,
        roam: this.zoom > 1 ? "move" : false, zoom: this.zoom, ...(this.centre ? { center: this.centre } : {}), silent: true,
        itemStyle: { areaColor: Theme.colour("land"), borderColor: Theme.colour("muted"), borderWidth: 0.4 },
        regions: [{ name: "lake", itemStyle: { areaColor: Theme.colour("sea") } }],
      },
      series: [
        ...keys.map((key) => ({ name: name(key), type: "scatter", coordinateSystem: "geo", data: groups.get(key), symbol: "rect", tooltip: { show: false }, symbolSize: Math.min(Math.max(2.4 * small, 1.3) * Math.sqrt(this.zoom), 7), silent: true, itemStyle: { color: colour(key), opacity: 0.8 }, z: 3, progressive: 0 })),
        { type: "lines", coordinateSystem: "geo", data: map.edges.map(([a, b]) => ({ coords: [centres[a], centres[b]] })), lineStyle: { color: ink, width: small < 0.7 ? 0.6 : 1, opacity: 0.5 }, silent: true, tooltip: { show: false }, z: 4 },
        {
          type: "scatter", coordinateSystem: "geo", z: 5, symbol: "circle", data: centres.map((place, i) => ({ value: [...place, i], symbolSize: small * (9 + 17 * Math.sqrt(owned[i] / most)) })),
          itemStyle: { color: surface, borderColor: ink, borderWidth: small < 0.7 ? 1 : 1.6, opacity: 0.95 },
          label: { show: small >= 0.7, formatter: (hit) => String(hit.value[2]), fontSize: 9.5, fontWeight: 600, color: ink },
        },
      ],
      tooltip: { ...baseOption().tooltip, formatter: (hit) => {
        const i = hit.value[2], counts = new Map(), begin = tiles.count.slice(0, i).reduce((a, b) => a + b, 0);
        for (let k = begin; k < begin + tiles.count[i]; k += 1) counts.set(tiles.class[k], (counts.get(tiles.class[k]) ?? 0) + 1);
        const largest = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 3);
        return tip(`Node ${i}: ${owned[i]} tiles`, largest.map(([key, count]) => [classes[key], `${Math.round((100 * count) / tiles.count[i])} %`]));
      } },
      aria: described(`Map of ${centres.length} regions of ${map.study}, joined by ${map.edges.length} edges`),
    };
  },
};

/** Land as GeoJSON. Rings that run the other way round are lakes. */
function landOf(map) {
  const area = (ring) => ring.slice(1).reduce((sum, [x, y], i) => sum + ring[i][0] * y - x * ring[i][1], 0);
  const of = (name, rings) => ({ type: "Feature", properties: { name }, geometry: { type: "MultiPolygon", coordinates: rings.map((ring) => [ring]) } });
  const features = [of("land", map.land.filter((ring) => area(ring) < 0)), of("lake", map.land.filter((ring) => area(ring) >= 0))];
  return { type: "FeatureCollection", features: features.filter((feature) => feature.geometry.coordinates.length) };
}
