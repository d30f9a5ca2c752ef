"""Which figures a section has, and that drawing is repeatable."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from drawn import by_method, footnote, preset, variant
from matplotlib.image import imread

from lntrust.experiment.reproduction import FigureSettings
from lntrust.experiment.store import Record
from lntrust.report.figures.draw import all_figures, draw, save, section_figures
from lntrust.report.figures.trust import choose_node
from lntrust.report.rows import Row
from lntrust.report.sections import Section


def kinds(section: Section, seen: set[str] | None = None) -> list[str]:
    return [stem for stem, _ in section_figures(section, seen)]


def test_what_a_section_has(rows: list[Row], placed: list[Row]) -> None:
    full = ["small-curves", "small-bytes", "small-communication", "small-importance", "small-trust"]
    assert kinds(Section("small", "small", "small", rows)) == [*full, "small-topology"]
    assert kinds(Section("small", "small", "small", placed)) == [*full, "small-topology", "small-map"]
    assert kinds(Section("s", "s", "small", [by_method(rows)["independent"]])) == ["s-curves"]
    varied = [dataclasses.replace(row, x=float(i)) for i, row in enumerate(rows[:2])]
    assert kinds(Section("a", "a", "small", varied, x="B")) == ["a-ablation", "a-curves"]
    assert kinds(Section("none", "none", "small", [])) == []


def test_what_one_method_alone_sends_is_shown_but_not_compared(rows: list[Row]) -> None:
    ours = [variant(rows[-1], name) for name in ("a", "b")]
    assert kinds(Section("s", "s", "small", [rows[0], *ours])) == [
        "s-curves", "s-bytes", "s-importance", "s-trust", "s-topology",
    ]  # fmt: skip
    silent = [row for row in rows if row.gigabytes() == 0]
    assert kinds(Section("s", "s", "small", silent)) == ["s-curves"]


def test_presets_are_methods_of_their_own_beside_lntrust(rows: list[Row]) -> None:
    section = Section("s", "s", "small", [rows[0], rows[-1], preset(rows, "lean")])
    assert kinds(section) == [f"s-{kind}" for kind in (
        "curves", "bytes", "communication", "importance", "trust", "topology")]  # fmt: skip
    assert not footnote(draw("trust", section.rows, title="small")).startswith("one of")  # it is LNTrust's
    assert footnote(draw("importance", section.rows, title="small")).startswith("LNTrust; ")


@pytest.mark.parametrize("x", [None, "B"])
def test_a_section_of_something_special_has_only_what_it_names(rows: list[Row], x: str | None) -> None:
    asked = [FigureSettings(kind="trust", node=2, seed=1), FigureSettings(kind="map")]
    unasked = [] if x is None else ["f4-curves", "f4-importance", "f4-topology"]
    section = Section("f4", "Figure 4", "small", rows, figures=asked, x=x)
    assert kinds(section) == ["f4-trust-node2-seed1", *unasked]


def test_a_section_that_names_curves_has_the_others_too_and_each_once(rows: list[Row]) -> None:
    assert kinds(Section("t1", "Table 1", "small", rows, figures=[FigureSettings(kind="bytes")])) == [
        "t1-bytes", "t1-curves", "t1-communication", "t1-importance", "t1-trust", "t1-topology",
    ]  # fmt: skip


def test_a_graph_is_shown_once_however_examples_are_split(rows: list[Row]) -> None:
    def split(record: Record, **world: Any) -> Record:
        return dataclasses.replace(record, world_text=json.dumps({**record.world, **world}))

    def of(**world: Any) -> Section:
        each = [
            dataclasses.replace(row, records=[split(r, **world) for r in row.records], label=f"{world}")
            for row in rows
        ]
        return Section(next(iter(world)), "", "small", each)

    sections = [of(test=[9] * 6), of(test=[8] * 6, validation=[[1] * 10] * 6), of(edges=[[0, 1]])]
    sections = [dataclasses.replace(s, name=str(i)) for i, s in enumerate(sections)]
    stems = [stem for stem, _ in all_figures(sections)]
    assert [stem for stem in stems if "topology" in stem] == ["0-topology", "2-topology"]


def test_sections_of_the_same_runs_share_figures(rows: list[Row]) -> None:
    seen: set[str] = set()
    assert len(kinds(Section("one", "one", "small", rows), seen)) == 6
    assert kinds(Section("two", "two", "small", rows), seen) == []
    fewer = [row for row in rows if row.first.method != "uniform"]
    assert kinds(Section("three", "three", "small", fewer), seen) == [
        "three-curves", "three-bytes", "three-communication",
    ]  # fmt: skip


def test_what_is_named_is_not_drawn_by_chance_under_another_name(rows: list[Row]) -> None:
    """A later section names what an earlier one of the same runs would have had unasked."""
    record = by_method(rows)["lntrust"].first
    graph = FigureSettings(kind="topology")
    trust = FigureSettings(kind="trust", node=choose_node(record)[0])
    sections = [
        Section("table", "Table 1", "small", rows),
        Section("graphs", "Figure 4", "small", rows[:1], figures=[graph]),
        Section("weights", "Figure 3", "small", rows, figures=[trust]),
    ]
    assert [stem for stem, _ in all_figures(sections)] == [
        "graphs-topology", f"weights-trust-node{trust.node}",
        "table-curves", "table-bytes", "table-communication", "table-importance",
    ]  # fmt: skip


def test_trust_unasked_is_shown_once_for_a_study(rows: list[Row]) -> None:
    ours = by_method(rows)["lntrust"]
    later = dataclasses.replace(ours, records=ours.records[1:])  # other runs, same study
    sections = [Section("one", "one", "small", [ours]), Section("two", "two", "small", [later])]
    stems = [stem for stem, _ in all_figures(sections)]
    assert [stem for stem in stems if "trust" in stem or "importance" in stem] == [
        "one-importance",
        "one-trust",
    ]
    assert "two-curves" in stems


def test_files_are_the_same_every_time(rows: list[Row], tmp_path: Path) -> None:
    section = Section("small", "small", "small", rows)
    for name in ("a", "b"):
        for stem, figure in section_figures(section):
            assert save(figure, tmp_path / name / stem) == [
                tmp_path / name / f"{stem}.png", tmp_path / name / f"{stem}.pdf",
            ]  # fmt: skip
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
    [plain] = save(draw("curves", rows, title="small"), tmp_path / "plain", "png")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "lines.linewidth": 9}):
        [other] = save(draw("curves", rows, title="small"), tmp_path / "other", "png")
        assert matplotlib.rcParams["font.size"] == 20
    assert plain.read_bytes() == other.read_bytes()


def test_a_label_may_hold_a_dollar(rows: list[Row], tmp_path: Path) -> None:
    odd = [dataclasses.replace(rows[0], label="costs $5 and $x^2$ or \\frac")]
    figure = draw("curves", odd, title="100 % of $B_i")
    assert save(figure, tmp_path / "odd", "png")[0].is_file()
