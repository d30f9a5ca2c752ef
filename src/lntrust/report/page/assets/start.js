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
  // Who prints the page as soon as it has loaded, as `chromium --print-to-pdf` does, must not be too early: an empty
  // frame whose document is still open holds the load event back.
  const hold = document.body.appendChild(element("iframe", { hidden: true, title: "loading" }));
  hold.contentDocument.open();
  unpacked().then((more) => { Object.assign(DATA, more); rest(); }).catch((error) => {
    for (const section of document.querySelectorAll("#nodes, #maps")) section.append(element("p", { class: "note" }, `This browser cannot show it: ${error}`));
  }).finally(() => { hold.contentDocument.close(); hold.remove(); root.dataset.ready = ""; });

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

  // Where a table goes on beyond its box, its edge shows it.
  const boxes = [...document.querySelectorAll(".scroll")];
  const edge = (box) => box.classList.toggle("more-right", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  const widths = new ResizeObserver((entries) => entries.forEach(({ target }) => edge(target.closest(".scroll"))));
  for (const box of boxes) {
    box.addEventListener("scroll", () => edge(box), { passive: true });
    widths.observe(box);
    widths.observe(box.firstElementChild);
  }

  // Paper is light, and shows what was folded away. Some browsers tell of printing one way, some another, some both.
  const paper = window.matchMedia("print");
  let before = null;
  const toPaper = () => {
    if (before) return;
    // Folded charts go to the others: so they fill their lines.
    const moved = [...document.querySelectorAll("details.more .charts")].map((home) => [home, [...home.children]]);
    for (const [home, cards] of moved) home.closest("section").querySelector(".charts").append(...cards);
    before = { theme: root.dataset.theme, moved };
    root.dataset.theme = "light";
    Charts.toPaper();
    swatches();
  };
  const toScreen = () => {
    if (!before) return;
    const { moved, theme } = before;
    before = null;
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    for (const [home, cards] of moved) home.append(...cards);
    Charts.toScreen();
    swatches();
  };
  window.addEventListener("beforeprint", toPaper);
  window.addEventListener("afterprint", toScreen);
  paper.addEventListener("change", () => (paper.matches ? toPaper() : toScreen()));
}
