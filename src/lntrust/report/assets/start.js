// Puts everything in its place.
"use strict";

{
  const root = document.documentElement, button = document.getElementById("theme");
  const remembered = () => { try { return localStorage.getItem("lntrust-theme"); } catch { return null; } };
  const remember = (value) => { try { localStorage.setItem("lntrust-theme", value); } catch { /* not from a file, in some browsers */ } };
  const name = () => { button.textContent = Theme.dark ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${Theme.dark ? "light" : "dark"} colours`); };
  const swatches = () => document.querySelectorAll(".swatch").forEach((each) => { each.style.background = stylesOf(DATA.sections[Number(each.dataset.section)])[Number(each.dataset.row)].colour; });
  const wanted = remembered();
  if (wanted === "dark" || wanted === "light") root.dataset.theme = wanted;
  const changed = () => { name(); swatches(); };
  button.addEventListener("click", () => { const next = Theme.dark ? "light" : "dark"; remember(next); Theme.set(next); changed(); });
  Theme.system.addEventListener("change", () => { Charts.redraw(); changed(); });
  changed();

  for (const box of document.querySelectorAll("[data-chart]")) KIND[box.dataset.chart](DATA.sections[Number(box.dataset.section)], box);

  const rest = () => {
    Nodes.start();
    Maps.start();
    // From a section to the node it speaks of.
    for (const link of document.querySelectorAll("a.go[data-study]")) {
      const { study, seed, node } = link.dataset;
      const runs = DATA.graphs.runs.filter((run) => run.study === study);
      const run = runs.find((each) => each.seed === Number(seed)) ?? runs[0];
      if (!run) { link.remove(); continue; }
      link.addEventListener("click", () => Nodes.show({ name: run.name, seed: run.seed, node: Number(node ?? 0) }));
    }
  };
  unpacked().then((more) => { Object.assign(DATA, more); rest(); }).catch((error) => {
    for (const section of document.querySelectorAll("#nodes, #maps")) section.append(element("p", { class: "note" }, `This browser cannot show it: ${error}`));
  }).finally(() => { root.dataset.ready = ""; });

  // A link into something folded opens it.
  const unfold = () => { for (let at = document.getElementById(location.hash.slice(1)); at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true; };
  window.addEventListener("hashchange", unfold);
  unfold();

  // On a phone the contents are closed at first; elsewhere they stay in view and show where the reader is.
  const contents = document.getElementById("contents");
  if (window.matchMedia("(max-width: 62rem)").matches) contents.open = false;
  const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  const sections = [...document.querySelectorAll("main > section")];
  let waiting = false;
  const locate = () => {
    waiting = false;
    // The last sections may be too short to reach the top: at the end of the page the last one counts.
    const atEnd = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 4;
    const above = sections.filter((section) => section.getBoundingClientRect().top < window.innerHeight * 0.3);
    const here = atEnd && window.scrollY > 0 ? sections.at(-1) : above.at(-1) ?? sections[0];
    for (const [id, link] of links) if (id === here.id) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  };
  window.addEventListener("scroll", () => { if (!waiting) { waiting = true; requestAnimationFrame(locate); } }, { passive: true });
  locate();

  // Paper is light, has one width, and shows what was folded away.
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, closed: [...document.querySelectorAll("details.more:not([open])")] };
    before.closed.forEach((each) => { each.open = true; });
    root.dataset.theme = "light";
    Charts.all();
    // The page is not laid out for paper yet: widths that fit two charts side by side, and one map.
    const onPaper = (box) => (box.id === "map" ? { width: 600, height: 600 / Number(box.style.aspectRatio) } : { width: box.classList.contains("small") ? 325 : 455 });
    for (const [box, { chart }] of Charts.known) chart.resize(onPaper(box));
    swatches();
  });
  window.addEventListener("afterprint", () => {
    before.closed.forEach((each) => { each.open = false; });
    Theme.set(before.theme);
    for (const { chart } of Charts.known.values()) chart.resize({ width: "auto", height: "auto" });
    swatches();
  });
}
