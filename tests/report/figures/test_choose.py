"""Which figures sections have, what cannot be drawn, and that drawing is repeatable."""

import dataclasses
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from drawn import footnote
from made_up import by_method, each, in_world, on_earth, preset, variant
from matplotlib.image import imread

from lntrust import LNTrustError
from lntrust.experiment.reproduction import FigureSettings
from lntrust.report.figures import all_figures, draw, named_figures, save
from lntrust.report.figures.graphs import choose_node
from lntrust.report.rows import Row
from lntrust.report.sections import Section


def stems(*sections: Section) -> list[str]:
    return [stem for stem, _ in all_figures(sections)]


def kinds(rows: list[Row], **more: Any) -> str:
    found = stems(Section("s", "s", "small", rows, **more))
    assert all(stem.startswith("s-") for stem in found)
    return " ".join(stem.removeprefix("s-") for stem in found)


class TestWhatASectionHas:
    def test_unasked(self, rows: list[Row]) -> None:
        full = "curves bytes communication importance trust topology"
        assert kinds(rows) == full
        assert kinds([each(row, on_earth) for row in rows]) == f"{full} map"
        assert kinds(rows[:1]) == "curves"
        assert kinds([row for row in rows if row.gigabytes() == 0]) == "curves"
        varied = [dataclasses.replace(row, x=float(i)) for i, row in enumerate(rows[:2])]
        assert kinds(varied, x="B") == "ablation curves"
        assert kinds([]) == ""
        # What one method alone sends is shown, but not compared.
        ours = [variant(rows[-1], name) for name in ("a", "b")]
        assert kinds([rows[0], *ours]) == "curves bytes importance trust topology"

    def test_presets_are_methods_of_their_own_beside_lntrust(self, rows: list[Row]) -> None:
        three = [rows[0], rows[-1], preset(rows, "lean")]
        assert kinds(three) == "curves bytes communication importance trust topology"
        assert not footnote(draw("trust", three, title="small")).startswith("one of")  # it is LNTrust's
        assert footnote(draw("importance", three, title="small")).startswith("LNTrust; ")

    @pytest.mark.parametrize(("x", "unasked"), [(None, ""), ("B", " curves importance topology")])
    def test_pictures_of_something_special_are_all(
        self, rows: list[Row], x: str | None, unasked: str
    ) -> None:
        asked = [FigureSettings(kind="trust", node=2, seed=1), FigureSettings(kind="map")]
        assert kinds(rows, figures=asked, x=x) == f"trust-node2-seed1{unasked}"
        plain = [FigureSettings(kind="bytes")]  # nothing special
        assert kinds(rows, figures=plain) == "bytes curves communication importance trust topology"
        named = named_figures(Section("s", "s", "small", rows, figures=asked, x=x))
        assert [stem for stem, _ in named] == ["s-trust-node2-seed1"]


class TestEachOnce:
    def test_sections_of_the_same_runs_share_figures(self, rows: list[Row]) -> None:
        fewer = [row for row in rows if row.first.method != "uniform"]
        sections = [Section(name, name, "small", each) for name, each in
                    (("one", rows), ("two", rows), ("three", fewer))]  # fmt: skip
        assert [stem for stem in stems(*sections) if not stem.startswith("one")] == [
            "three-curves", "three-bytes", "three-communication",
        ]  # fmt: skip

    def test_a_graph_however_examples_are_split(self, rows: list[Row]) -> None:
        worlds = [{"test": [9] * 6}, {"test": [8] * 6, "validation": [[1] * 10] * 6}, {"edges": [[0, 1]]}]
        sections = [Section(str(i), "", "small", [each(row, in_world, **world) for row in rows])
                    for i, world in enumerate(worlds)]  # fmt: skip
        assert [stem for stem in stems(*sections) if "topology" in stem] == ["0-topology", "2-topology"]

    def test_what_is_named_is_not_drawn_by_chance_under_another_name(self, rows: list[Row]) -> None:
        """A later section names what an earlier one of the same runs would have had unasked."""
        graph = FigureSettings(kind="topology")
        trust = FigureSettings(kind="trust", node=choose_node(by_method(rows)["lntrust"].first)[0])
        sections = [
            Section("table", "Table 1", "small", rows),
            Section("graphs", "Figure 4", "small", rows[:1], figures=[graph]),
            Section("weights", "Figure 3", "small", rows, figures=[trust]),
        ]
        assert stems(*sections) == [
            "graphs-topology", f"weights-trust-node{trust.node}",
            "table-curves", "table-bytes", "table-communication", "table-importance",
        ]  # fmt: skip

    def test_trust_unasked_once_for_a_study(self, rows: list[Row]) -> None:
        ours = by_method(rows)["lntrust"]
        later = dataclasses.replace(ours, records=ours.records[1:])  # other runs, same study
        found = stems(Section("one", "one", "small", [ours]), Section("two", "two", "small", [later]))
        assert [stem for stem in found if "trust" in stem or "imp" in stem] == ["one-importance", "one-trust"]
        assert "two-curves" in found


@pytest.mark.parametrize(
    ("kind", "which", "why"),
    [
        ("communication", "silent", "nobody sends anything in training"),
        ("bytes", "silent", "nobody sends anything in rounds that were evaluated"),
        ("curves", "bare", "no round was evaluated"),
        ("ablation", "all", "its rows vary nothing"),
        ("importance", "silent", "LNTrust was not run, or reports no importance"),
        ("trust", "silent", "LNTrust was not run, or reports no trust"),
        ("map", "all", "its nodes have no places on a map"),
        ("curves", "none", "nothing of it was run"),
    ],
)
def test_what_cannot_be_drawn_is_refused(rows: list[Row], kind: Any, which: str, why: str) -> None:
    some = {"all": rows, "none": [], "silent": [row for row in rows if row.gigabytes() == 0],
            "bare": [each(row, dataclasses.replace, tables={}) for row in rows]}  # fmt: skip
    with pytest.raises(LNTrustError, match=f"figure {kind} of small: {why}"):
        draw(kind, some[which], title="small")


def test_files_are_the_same_every_time(rows: list[Row], tmp_path: Path) -> None:
    section = Section("small", "small", "small", rows)
    for name in ("a", "b"):
        for stem, figure in all_figures([section]):
            written = save(figure, tmp_path / name / stem)
            assert written == [tmp_path / name / f"{stem}.{suffix}" for suffix in ("png", "pdf")]
    first = sorted((tmp_path / "a").iterdir())
    assert len(first) == 12
    for path in first:
        content = path.read_bytes()
        assert content == (tmp_path / "b" / path.name).read_bytes()
        if path.suffix == ".png":
            image = imread(path)
            assert image.shape[1] == 700  # 3.5 inches, a column
            assert 200 < image.shape[0] < 1200
            assert (image[..., :3].min(axis=2) < 0.5).mean() > 0.002  # there is ink on it
        else:
            assert content.startswith(b"%PDF-")
            assert b"CreationDate" not in content
            assert b"/Subtype /Type3" not in content  # fonts can be edited, and journals take them
            assert b"/FontFile2" in content


def test_the_users_settings_of_matplotlib_do_not_matter_and_stay(rows: list[Row], tmp_path: Path) -> None:
    odd = [dataclasses.replace(rows[0], label="costs $5 and $x^2$ or \\frac")]  # a label may hold a dollar
    [plain] = save(draw("curves", odd, title="100 % of $B_i"), tmp_path / "plain", "png")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "lines.linewidth": 9}):
        [other] = save(draw("curves", odd, title="100 % of $B_i"), tmp_path / "other", "png")
        assert matplotlib.rcParams["font.size"] == 20
    assert plain.read_bytes() == other.read_bytes()
