"""The page for eyes and ears: light, dark, on a phone, a laptop and on paper, in a real browser."""

from pathlib import Path

import pytest
from browsing import Opened, contrast, drawn, luminance, option, until
from playwright.sync_api import Page


class TestLooks:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_text_can_be_read(self, report: Path, opened: Opened, scheme: str) -> None:
        page = opened(report, scheme=scheme)
        page.locator(".study > summary").first.click()
        text = ("body", ".subtitle", ".note", "nav a", ".results td", ".results .std", "thead th", "button",
                "select", "#overview a", "pre", "tr.best td", "caption")  # fmt: skip
        for selector in text:
            assert contrast(page, selector) >= 4.5, selector
        shade = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert shade < 0.05 if scheme == "dark" else shade > 0.8

    def test_theme_can_be_chosen(self, report: Path, opened: Opened) -> None:
        page = opened(report, scheme="dark")
        dark = option(page, "#s-small [data-chart=curves]")["textStyle"]["color"]
        page.get_by_role("button", name="Switch to light colours").click()
        assert luminance(page.evaluate("getComputedStyle(document.body).backgroundColor")) > 0.8
        assert option(page, "#s-small [data-chart=curves]")["textStyle"]["color"] != dark
        page.reload()
        page.locator("html[data-ready]").wait_for(state="attached")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"  # is remembered

    def test_phone(self, report: Path, opened: Opened) -> None:
        page = opened(report, width=360)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 360
        widths = page.evaluate("[...document.querySelectorAll('.chart svg, canvas')].map(e => e.clientWidth)")
        assert max(widths) < 340
        box = page.locator("#s-small .scroll")
        assert box.evaluate("box => box.scrollWidth > box.clientWidth")  # scrolls inside its own box
        until(page, "document.querySelector('#s-small .scroll').classList.contains('more-right')")
        box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
        until(page, "!document.querySelector('#s-small .scroll').classList.contains('more-right')")

    def test_laptop(self, page: Page) -> None:
        boxes = page.locator(".scroll")
        assert boxes.evaluate_all("all => all.filter(b => b.scrollWidth > b.clientWidth).length") == 0
        assert page.evaluate(NAMELESS) == []  # for those who listen
        assert page.locator("h1").count() == 1
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
        assert len(ids) == len(set(ids))

    def test_graph_fills_its_box_and_arrows_come_to_the_chosen_node(self, page: Page) -> None:
        """As in the figures: an arrow's tip, the fourth point of its outline, is nearer to who is chosen."""
        page.locator("#run-choice").select_option("small · lntrust, budget = 200")
        script = """() => {
            const box = document.getElementById("graph").getBoundingClientRect();
            const dots = Nodes.dots.map(dot => dot.getBoundingClientRect());
            const span = (a, b) => Math.max(...dots.map(d => d[b])) - Math.min(...dots.map(d => d[a]));
            return [span("left", "right") / box.width, span("top", "bottom") / box.height];
        }"""
        assert min(page.evaluate(script)) > 0.8
        nearer = page.evaluate(
            """[...document.querySelectorAll("#graph .arrow")].map(arrow => {
                const outline = arrow.getAttribute("d").slice(1, -1).split("L");
                const [begin, , , tip] = outline.map(point => point.split(" ").map(Number));
                const away = (p, node) => Math.hypot(...[0, 1].map(i => p[i] - Nodes.places[node][i]));
                const me = Nodes.chosen.node, from = Number(arrow.dataset.from);
                return away(tip, me) < away(begin, me) && away(begin, from) < away(tip, from);
            })"""
        )
        assert nearer
        assert all(nearer)

    def test_charts_fit_on_paper(self, report: Path, opened: Opened) -> None:
        page = opened(report, scheme="dark", draw=False)
        page.emulate_media(media="print")
        until(page, "Charts.onPaper")
        for width in (1040, 700):  # paper lying, paper standing
            page.set_viewport_size({"width": width, "height": 700})
            assert page.evaluate(BEYOND) == []
        page.set_viewport_size({"width": 1040, "height": 700})
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 1040  # tables, too
        assert page.evaluate(INKED) > 3  # the map is more than sea
        assert luminance(page.evaluate("getComputedStyle(document.body).backgroundColor")) > 0.8
        assert page.locator("details.more .card").count() == 0  # what is folded is among the others
        small = page.evaluate(
            """[".results td.test", ".results td.test .std"].map(
                 s => parseFloat(getComputedStyle(document.querySelector(s)).fontSize))"""
        )
        assert small[1] < small[0]
        page.emulate_media(media="screen")
        until(page, "!Charts.onPaper")
        assert page.evaluate("document.querySelector('.chart svg[viewBox]')") is None

    def test_print(self, report: Path, opened: Opened) -> None:
        page = opened(report, scheme="dark", draw=False)
        assert drawn(page) < page.evaluate("Charts.known.size")
        assert page.pdf(format="A4").startswith(b"%PDF")
        assert drawn(page) == page.evaluate("Charts.known.size")
        assert page.evaluate("document.documentElement.dataset.theme ?? 'none'") == "none"  # as before


# Charts that are not drawn, have no size, or reach beyond their card.
BEYOND = """[...Charts.known.keys()].filter(box => {
  const card = box.closest(".card").getBoundingClientRect();
  const all = [...box.querySelectorAll("svg, canvas")].map(each => each.getBoundingClientRect());
  const pictures = all.filter(each => each.width);
  return !pictures.length || pictures.some(p => p.height < 50 || p.left < card.left || p.right > card.right
    || p.top < card.top || p.bottom > card.bottom);
}).map(box => box.outerHTML.slice(0, 120))"""
# How many colours there are on the map.
INKED = """(() => {
  const canvas = document.querySelector("#map canvas"), { width, height } = canvas;
  const bytes = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, width, height).data.buffer);
  return new Set(bytes).size;
})()"""
NAMELESS = """(() => {
  const all = selector => [...document.querySelectorAll(selector)];
  const own = control => control.getAttribute("aria-label") ?? "";
  const beside = select => [...select.labels].map(l => l.firstChild.textContent).join("");
  return [
    ...all("table").filter(table => !table.caption?.textContent || !table.tHead),
    ...all("th").filter(cell => !cell.scope),
    ...all(".chart").filter(chart => own(chart).length < 20),
    ...all("button").filter(button => !(button.textContent.trim() || own(button))),
    ...all("select").filter(select => !(own(select) || beside(select).trim())),
  ].map(each => each.outerHTML.slice(0, 120));
})()"""
