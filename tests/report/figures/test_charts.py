"""Curves, accuracy against bytes, ablations and bars: they end where the runs end."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import pytest
from drawn import bars, by_name, end, footnote, texts
from made_up import by_method, each, in_study, older, preset, renamed, sending, with_rounds
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.text import Text

from lntrust.core.text import bytes_text, number_text, score_text
from lntrust.report.figures import draw
from lntrust.report.figures.style import NAMES, name_of
from lntrust.report.rows import Row


class TestCurves:
    def test_they_end_at_the_summaries_scores(self, rows: list[Row]) -> None:
        def check(shown: Sequence[Row], score: str, axes: Axes, style: str) -> None:
            lines = [x for x in axes.lines if x.get_linestyle() == style and len(x.get_xdata()) > 2]  # type: ignore[arg-type]
            means = [np.mean([record.summary[score] for record in row.records]) for row in shown]
            assert [end(line)[1] for line in lines] == pytest.approx(means)
            assert np.asarray(lines[0].get_xdata()).tolist() == [2, 4, 6]

        [axes] = draw("curves", rows[1:], title="small").axes  # few: together
        check(rows[1:], "test", axes, "-")
        check(rows[1:], "self", axes, "--")
        test, own = draw("curves", rows, title="small").axes
        check(rows, "test", test, "-")
        check(rows, "self", own, "-")

    def test_bands_of_one_deviation(self, rows: list[Row]) -> None:
        row = by_method(rows)["uniform"]
        [axes] = draw("curves", [row], title="small").axes
        y = axes.collections[0].get_paths()[0].vertices[:, 1]  # type: ignore[index]
        scores = np.array([record.rounds["test"].drop_null().to_pylist() for record in row.records])
        mean, std = scores.mean(0), scores.std(0)
        assert std.any()
        assert sorted(set(y.tolist())) == pytest.approx(sorted({*(mean + std), *(mean - std)}))  # type: ignore[union-attr]
        single = draw("curves", [dataclasses.replace(row, records=row.records[:1])], title="small")
        assert not single.axes[0].collections
        assert footnote(single) == "one seed"

    def test_many_have_no_bands_but_say_how_seeds_vary(self, rows: list[Row]) -> None:
        figure = draw("curves", rows, title="small")
        assert not any(axes.collections for axes in figure.axes)
        ends = [record.summary["test"] for record in by_method(rows)["lntrust"].records]
        words = f"at the end, Test of “LNTrust”: {score_text(float(np.std(ends)))}"
        assert words in footnote(figure)
        # Presets are bold, too; said once is enough, and of LNTrust.
        odd = dataclasses.replace(renamed(rows[0], "fedpae"), label="FedPAE")
        again = footnote(draw("curves", [preset(rows, "lean"), odd, *rows], title="small"))
        assert words in again
        assert again.count("standard deviation") == 1
        assert "FedPAE: alone until it selects its ensemble at the end" in again

    def test_each_is_marked_at_rounds_of_its_own(self, rows: list[Row]) -> None:
        def marks(shown: list[Row]) -> list[list[int]]:
            lines = draw("curves", shown, title="small").axes[0].lines
            return [line.get_markevery() for line in lines if line.get_linestyle() == "-"]  # type: ignore[misc]

        assert marks(rows[:2]) == [[0, 1, 2], [0, 1, 2]]  # three rounds were evaluated
        names = rows[0].first.rounds.column_names[1:]
        many = {"round": list(range(25)), **{name: [0.5] * 25 for name in names}}
        first, second = marks([each(row, with_rounds, **many) for row in rows[:2]])
        assert (len(first), len(second), set(first) & set(second)) == (4, 4, set())

    @pytest.mark.parametrize("kind", ["curves", "bytes"])
    def test_the_tables_score_may_be_of_another_round(self, rows: list[Row], kind: Any) -> None:
        papers = [each(row, in_study, reading="paper") for row in rows]
        words = "curves show every round; the table's † is the best one"
        assert words in footnote(draw(kind, papers, title="small"))
        assert words not in footnote(draw(kind, rows, title="small"))

    def test_names_stand_at_the_ends_and_apart(self, rows: list[Row]) -> None:
        """Fourteen lines that end at two places."""
        many = [dataclasses.replace(row, label=f"{row.label}{i or ''}") for i in range(4) for row in rows]
        figure = draw("curves", many[:14], title="small")
        assert len(figure.axes) == 2  # Test and Self apart
        figure.canvas.draw()
        for axes in figure.axes:
            notes = [note for note in axes.texts if note.get_text() != "Stage 2"]
            boxes = sorted((Text.get_window_extent(note) for note in notes), key=lambda box: box.y0)
            assert len(boxes) == 14
            assert min(box.x0 for box in boxes) > axes.get_window_extent().x1
            assert all(b.y0 - a.y0 > 0.8 * a.height for a, b in itertools.pairwise(boxes))
            assert max(box.x1 for box in boxes) <= figure.bbox.x1


class TestBytes:
    """Lines end at all that was sent, points stand at what was no question."""

    def test_everything_and_what_is_no_question(self, rows: list[Row]) -> None:
        figure = draw("bytes", rows, title="small")
        every, answers = figure.axes
        lines, points = by_name(every), by_name(answers)
        assert every.get_xscale() == "log"
        assert (every.get_xlim(), every.get_ylim()) == (answers.get_xlim(), answers.get_ylim())
        for method, kind in (("d_psgd", "parameters"), ("lntrust", "reply")):
            row = by_method(rows)[method]
            line, point = lines[name_of(row)], points[name_of(row)]
            score = np.mean([record.summary["test"] for record in row.records])
            assert end(line) == pytest.approx([1e9 * row.gigabytes(), score])
            assert line.get_markevery() == [-1]
            sizes = [record.summary["bytes"] for record in row.records]
            sent = np.mean([(size[kind] + size["framing_by_kind"][kind]) / 6 for size in sizes])
            assert np.asarray([point.get_xdata(), point.get_ydata()])[:, 0] == pytest.approx([sent, score])
        assert end(points["LNTrust"])[0] < 0.5 * end(lines["LNTrust"])[0]  # mostly inputs
        alone = np.mean([record.summary["test"] for record in by_method(rows)["independent"].records])
        for level in (lines["Independent"], points["Independent"]):
            assert np.asarray(level.get_ydata()) == pytest.approx([alone, alone])
        assert footnote(figure).endswith("(the course of queries is not stored), with their headers")
        [legend] = figure.legends
        shown = [end(lines[text.get_text()])[1] for text in legend.get_texts()]
        assert shown == sorted(shown, reverse=True)  # in the order of the ends

    def test_headers_that_are_not_known_are_not_counted_and_that_is_said(self, rows: list[Row]) -> None:
        old, lean = [each(row, older) for row in rows], preset(rows, "lean")
        figure = draw("bytes", old, title="small")
        sent = 1e9 * by_method(rows)["lntrust"].gigabytes("reply")
        assert end(by_name(figure.axes[1])["LNTrust"])[0] == pytest.approx(sent)
        for shown, words in (
            (old, "without headers, which these runs have not stored by kind"),
            ([*old, lean], "with headers only of LNTrust, lean: the other runs have not stored them by kind"),
            ([*rows, each(lean, older)], "with headers, but not of LNTrust, lean, whose runs have not stored "
             "them by kind"),
        ):  # fmt: skip
            assert footnote(draw("bytes", shown, title="small")).endswith(words)

    def test_anchors_and_what_is_sent_after_the_last_round_count(self, rows: list[Row]) -> None:
        """As when models are fetched once training is over."""
        row = each(by_method(rows)["d_psgd"], sending, anchors=600)
        figure = draw("bytes", [row], title="small")
        assert "anchors count as parameters do" in footnote(figure)
        sizes = [record.summary["bytes"] for record in row.records]
        parameters = np.mean([size["parameters"] + size["framing_by_kind"]["parameters"] for size in sizes])
        assert end(figure.axes[1].lines[0])[0] == pytest.approx((parameters + 600) / 6)
        late = draw("bytes", [each(by_method(rows)["uniform"], sending, total=6_000_000)], title="small")
        assert np.asarray(late.axes[0].lines[0].get_xdata()) == pytest.approx([1_000_000])
        assert len(late.axes[1].lines) == 0  # it sends, but only questions
        assert "anchors" not in footnote(late)

    def test_presets_beside_every_baseline_can_be_read(self, rows: list[Row]) -> None:
        """Seventeen lines: nothing of the legend lies on anything else, or beyond the edge."""
        here = {row.first.method for row in rows}
        others = [renamed(rows[k % 3], name) for k, name in enumerate(NAMES) if name not in here]
        figure = draw("bytes", [*rows, *others], title="small")
        figure.draw_without_rendering()
        [legend] = figure.legends
        entries = legend.get_texts()
        assert {entry.get_text() for entry in entries} == set(NAMES.values())
        bold = {entry.get_text() for entry in entries if entry.get_fontweight() == "bold"}
        assert bold == {"LNTrust", "LNTrust, lean", "LNTrust, safe", "LNTrust, best"}
        boxes = [entry.get_window_extent() for entry in entries]
        assert all(a.y0 > b.y1 - 1 for a, b in itertools.pairwise(boxes))
        around = legend.get_window_extent()
        assert max(box.x1 for box in [*boxes, around]) <= figure.bbox.x1
        assert figure.bbox.y0 <= around.y0 < around.y1 <= figure.bbox.y1
        reaches = [axes.get_tightbbox() for axes in figure.axes]  # titles and labels included
        assert max(reach.x1 for reach in reaches if reach) < around.x0


class TestAblation:
    def test_ours_and_the_papers(self, rows: list[Row]) -> None:
        row = by_method(rows)
        varied = [
            dataclasses.replace(row["lntrust"], label="B = 0", x=0.0, paper={"test": 0.5, "self": 0.4}),
            dataclasses.replace(row["uniform"], label="B = 100", x=100.0, paper={"test": 0.6}),
        ]
        [axes] = draw("ablation", [*varied, row["independent"]], title="small", x="budget B").axes
        errors = [c for c in axes.containers if isinstance(c, ErrorbarContainer)]
        for container, score in zip(errors, ("test", "self"), strict=True):
            spreads = [one.spread(score) for one in varied]
            assert container.lines[0] is not None
            assert np.asarray(container.lines[0].get_ydata()) == pytest.approx([s.mean for s in spreads if s])
            segments = container.lines[2][0].get_segments()
            assert [np.ptp(s[:, 1]) / 2 for s in segments] == pytest.approx([s.std for s in spreads if s])
        hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
        assert [np.asarray(line.get_ydata()).tolist() for line in hollow] == [[0.5, 0.6], [0.4]]
        assert axes.get_xlabel() == "budget B"
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
            ([5], "linear", [5]),
        ],
    )
    def test_scale(self, rows: list[Row], values: list[float], scale: str, places: list[float]) -> None:
        varied = [dataclasses.replace(rows[-1], x=float(v)) for v in values]
        papers = [each(row, in_study, reading="paper") for row in varied]
        figure = draw("ablation", papers, title="small", x="x")
        [axes] = figure.axes
        assert axes.get_xscale() == scale
        assert np.asarray(axes.get_xticks()).tolist() == pytest.approx(places)
        assert [tick.get_text() for tick in axes.get_xticklabels()] == [f"{v:g}" for v in values]
        assert footnote(figure).endswith("Test of LNTrust: its best round on test, as in the paper")


class TestBars:
    def test_communication_shows_both_countings(self, rows: list[Row]) -> None:
        figure = draw("communication", rows, title="small")
        paper, everything = figure.axes
        ways = [(paper, {"lntrust": "reply", "d_psgd": "parameters"}),
                (everything, {"lntrust": "total", "d_psgd": "total"})]  # fmt: skip
        for axes, kinds in ways:
            found = {method: by_method(rows)[method] for method in kinds}
            per_gb = {name_of(row): row.test.mean / row.gigabytes(kinds[method])
                      for method, row in found.items() if row.test is not None}  # fmt: skip
            assert bars(axes) == pytest.approx(per_gb)
            assert list(bars(axes)) == sorted(per_gb, key=lambda name: per_gb[name])  # the longest on top
        colours = [matplotlib.colors.to_hex(patch.get_facecolor()) for patch in paper.patches]
        assert dict(zip(bars(paper), colours, strict=True)) == {"LNTrust": "#d55e00", "D-PSGD": "#8a8f98"}
        ours = by_method(rows)["lntrust"]
        assert ours.test is not None
        little = bytes_text(1e9 * ours.gigabytes("reply"))  # for GB
        assert f"{score_text(ours.test.mean)} · {little}" in texts(paper)
        assert "left out: Independent, Uniform" in footnote(figure)

    def test_communication_takes_a_logarithm_only_where_bars_differ_much(self, rows: list[Row]) -> None:
        row = by_method(rows)["d_psgd"]
        hundred = {k: 100 * v for k, v in row.first.summary["bytes"].items() if isinstance(v, int)}
        more = dataclasses.replace(each(row, sending, **hundred), label="more")
        alike = draw("communication", [row, dataclasses.replace(row, label="again")], title="")
        apart = draw("communication", [row, more], title="")
        assert {axes.get_xscale() for axes in alike.axes} == {"linear"}
        assert {axes.get_xscale() for axes in apart.axes} == {"log"}
        assert more.gigabytes() > 0.001
        assert f"{number_text(more.gigabytes())} GB" in " ".join(texts(apart.axes[1]))

    def test_importance(self, rows: list[Row]) -> None:
        reports = [record.summary["method_report"] for record in by_method(rows)["lntrust"].records]
        [axes] = draw("importance", rows, title="small").axes
        shown = bars(axes)
        for name, length in shown.items():
            assert length == pytest.approx(np.mean([report["importance"][name] for report in reports]))
        assert list(shown.values()) == sorted(shown.values())
        [container] = [c for c in axes.containers if isinstance(c, BarContainer)]
        assert container.errorbar is not None
        half = [np.ptp(segment[:, 0]) / 2 for segment in container.errorbar.lines[2][0].get_segments()]
        deviations = [np.mean([report["importance_std"][name] for report in reports]) for name in shown]
        assert half == pytest.approx(deviations)
