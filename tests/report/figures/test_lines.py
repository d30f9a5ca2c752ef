"""Curves and ablations: they end where the runs end."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from drawn import by_method, footnote, one_seed, preset, renamed
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.text import Text

from lntrust import LNTrustError
from lntrust.experiment.store import Record
from lntrust.report.claims import short
from lntrust.report.figures import lines as figure_lines
from lntrust.report.figures.draw import draw
from lntrust.report.rows import Row


def test_curves_end_at_the_summaries_scores(rows: list[Row]) -> None:
    def check(shown: Sequence[Row], score: str, axes: Axes, style: str) -> None:
        lines = [line for line in axes.lines if line.get_linestyle() == style and len(line.get_xdata()) > 2]
        ends = [float(np.asarray(line.get_ydata())[-1]) for line in lines]
        assert ends == pytest.approx(
            [np.mean([record.summary[score] for record in row.records]) for row in shown]
        )
        assert np.asarray(lines[0].get_xdata()).tolist() == [2, 4, 6]

    [axes] = draw("curves", rows[1:], title="small").axes  # few: together
    check(rows[1:], "test", axes, "-")
    check(rows[1:], "self", axes, "--")
    test, own = draw("curves", rows, title="small").axes
    check(rows, "test", test, "-")
    check(rows, "self", own, "-")


def test_curves_have_bands_of_one_deviation(rows: list[Row]) -> None:
    row = by_method(rows)["uniform"]
    [axes] = draw("curves", [row], title="small").axes
    y = axes.collections[0].get_paths()[0].vertices[:, 1]  # type: ignore[index]
    scores = np.array([record.rounds["test"].drop_null().to_pylist() for record in row.records])
    mean, std = scores.mean(0), scores.std(0)
    assert std.any()
    assert sorted(set(y.tolist())) == pytest.approx(sorted({*(mean + std), *(mean - std)}))  # type: ignore[union-attr]


def test_many_curves_have_no_bands_but_say_how_seeds_vary(rows: list[Row]) -> None:
    figure = draw("curves", rows, title="small")
    assert not any(axes.collections for axes in figure.axes)
    ends = [record.summary["test"] for record in by_method(rows)["lntrust"].records]
    said = f"at the end, Test of “LNTrust”: {short(float(np.std(ends)))}"
    assert said in footnote(figure)
    # Presets are bold, too; said once is enough, and of LNTrust.
    again = footnote(draw("curves", [preset(rows, "lean"), *rows], title="small"))
    assert said in again
    assert again.count("standard deviation") == 1


def test_each_curve_is_marked_at_rounds_of_its_own(rows: list[Row]) -> None:
    lines = draw("curves", rows[:2], title="small").axes[0].lines
    marks = [line.get_markevery() for line in lines if line.get_linestyle() == "-"]
    assert marks == [[0, 1, 2], [0, 1, 2]]  # three rounds were evaluated
    long = [figure_lines.Course(*[np.arange(25.0)] * 4)] * 2
    first, second = (figure_lines._marks(path, number, 2) for number, path in enumerate(long))
    assert (len(first), len(second), set(first) & set(second)) == (4, 4, set())


def test_curves_explain_what_one_may_wonder_about(rows: list[Row]) -> None:
    odd = [dataclasses.replace(renamed(rows[0], "fedpae"), label="FedPAE"), *rows[1:]]
    said = "FedPAE: alone until it selects its ensemble at the end"
    assert said in footnote(draw("curves", odd, title="small"))
    assert "alone until" not in footnote(draw("curves", rows, title="small"))


@pytest.mark.parametrize("kind", ["curves", "bytes"])
def test_curves_say_that_the_tables_score_is_of_another_round(rows: list[Row], kind: Any) -> None:
    def read(record: Record) -> Record:
        study = {**record.identity["study"], "reading": "paper"}
        return dataclasses.replace(record, identity={**record.identity, "study": study})

    papers = [dataclasses.replace(row, records=[read(r) for r in row.records]) for row in rows]
    said = "curves show every round; the table's † is the best one"
    assert said in footnote(draw(kind, papers, title="small"))
    assert said not in footnote(draw(kind, rows, title="small"))


def test_curves_of_one_seed_have_no_band(rows: list[Row]) -> None:
    figure = draw("curves", [one_seed(row) for row in rows], title="small")
    assert not figure.axes[0].collections
    assert footnote(figure) == "one seed"


def test_names_stand_at_the_ends_and_apart(rows: list[Row]) -> None:
    """Fourteen lines that end at two places."""
    many = [
        dataclasses.replace(row, label=f"{row.label}{i}" if i else row.label)
        for i in range(4)
        for row in rows
    ]
    figure = draw("curves", many[:14], title="small")
    assert len(figure.axes) == 2  # Test and Self apart
    figure.canvas.draw()
    for axes in figure.axes:
        boxes = sorted(
            (Text.get_window_extent(note) for note in axes.texts if note.get_text() != "Stage 2"),
            key=lambda box: box.y0,
        )
        assert len(boxes) == 14
        assert min(box.x0 for box in boxes) > axes.get_window_extent().x1
        assert all(b.y0 - a.y0 > 0.8 * a.height for a, b in itertools.pairwise(boxes))
        assert max(box.x1 for box in boxes) <= figure.bbox.x1


def test_curves_without_evaluated_rounds_are_refused(rows: list[Row]) -> None:
    bare = [
        dataclasses.replace(row, records=[dataclasses.replace(r, tables={}) for r in row.records])
        for row in rows
    ]
    with pytest.raises(LNTrustError, match="no round was evaluated"):
        draw("curves", bare, title="small")


def test_ablation_shows_ours_and_the_papers(rows: list[Row]) -> None:
    row = by_method(rows)
    varied = [
        dataclasses.replace(row["lntrust"], label="B = 0", x=0.0, paper={"test": 0.5, "self": 0.4}),
        dataclasses.replace(row["uniform"], label="B = 100", x=100.0, paper={"test": 0.6}),
    ]
    [axes] = draw("ablation", [*varied, row["independent"]], title="small", x="budget B").axes
    errors = [c for c in axes.containers if isinstance(c, ErrorbarContainer)]
    for container, score in zip(errors, ("test", "self"), strict=True):
        spreads = [each.spread(score) for each in varied]
        assert container.lines[0] is not None
        assert np.asarray(container.lines[0].get_ydata()) == pytest.approx([s.mean for s in spreads if s])
        segments = container.lines[2][0].get_segments()
        assert [np.ptp(s[:, 1]) / 2 for s in segments] == pytest.approx([s.std for s in spreads if s])
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert [np.asarray(line.get_ydata()).tolist() for line in hollow] == [[0.5, 0.6], [0.4]]
    assert axes.get_xlabel() == "budget B"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "100"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "Test", "Self", "Test, paper", "Self, paper", "Independent (Test)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "scale", "places"),
    [
        ([0, 500, 1000], "linear", [0, 500, 1000]),
        ([0.01, 0.1, 1, 10], "log", [0.01, 0.1, 1, 10]),
        ([0, 1, 1000], "linear", [0, 1, 2]),  # no scale tells 0 from 1: evenly
    ],
)
def test_ablations_scale(rows: list[Row], values: list[float], scale: str, places: list[float]) -> None:
    varied = [dataclasses.replace(rows[-1], x=float(v)) for v in values]
    [axes] = draw("ablation", varied, title="small", x="x").axes
    assert axes.get_xscale() == scale
    assert np.asarray(axes.get_xticks()).tolist() == pytest.approx(places)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [f"{v:g}" for v in values]


def test_nothing_varied_is_refused(rows: list[Row]) -> None:
    with pytest.raises(LNTrustError, match="figure ablation of small: its rows vary nothing"):
        draw("ablation", rows, title="small")
