"""Bars: what is sent, and which features matter."""

import dataclasses

import matplotlib
import numpy as np
import pytest
from drawn import bars, footnote, texts
from made_up import by_method, each, sending
from matplotlib.container import BarContainer

from lntrust.core.text import bytes_text, number_text, score_text
from lntrust.report.figures import draw
from lntrust.report.rows import Row


def test_communication_shows_both_countings(rows: list[Row]) -> None:
    figure = draw("communication", rows, title="small")
    ours, average = by_method(rows)["lntrust"], by_method(rows)["d_psgd"]
    paper, everything = figure.axes
    assert ours.test is not None
    assert average.test is not None
    per_gb = {"LNTrust": ours.test.mean / ours.gigabytes("reply"),
              "D-PSGD": average.test.mean / average.gigabytes("parameters")}  # fmt: skip
    assert bars(paper) == pytest.approx(per_gb)
    assert list(bars(paper)) == sorted(per_gb, key=lambda name: per_gb[name])  # the longest on top
    per_gb = {"LNTrust": ours.test.mean / ours.gigabytes(), "D-PSGD": average.test.mean / average.gigabytes()}
    assert bars(everything) == pytest.approx(per_gb)
    colours = [matplotlib.colors.to_hex(patch.get_facecolor()) for patch in paper.patches]
    assert dict(zip(bars(paper), colours, strict=True)) == {"LNTrust": "#d55e00", "D-PSGD": "#8a8f98"}
    assert any(text.startswith(f"{score_text(ours.test.mean)} · ") for text in texts(paper))
    assert bytes_text(1e9 * ours.gigabytes("reply")) in " ".join(texts(paper))  # too little for GB
    assert "left out: Independent, Uniform" in footnote(figure)


def test_communication_takes_a_logarithm_only_where_bars_differ_much(rows: list[Row]) -> None:
    row = by_method(rows)["d_psgd"]
    hundred = {k: 100 * v for k, v in row.first.summary["bytes"].items() if isinstance(v, int)}
    more = dataclasses.replace(each(row, sending, **hundred), label="more")
    alike = draw("communication", [row, dataclasses.replace(row, label="again")], title="")
    apart = draw("communication", [row, more], title="")
    assert [axes.get_xscale() for axes in alike.axes] == ["linear", "linear"]
    assert [axes.get_xscale() for axes in apart.axes] == ["log", "log"]
    assert more.gigabytes() > 0.001
    assert f"{number_text(more.gigabytes())} GB" in " ".join(texts(apart.axes[1]))


def test_importance(rows: list[Row]) -> None:
    reports = [record.summary["method_report"] for record in by_method(rows)["lntrust"].records]
    [axes] = draw("importance", rows, title="small").axes
    shown = bars(axes)
    for name, length in shown.items():
        assert length == pytest.approx(np.mean([report["importance"][name] for report in reports]))
    assert list(shown.values()) == sorted(shown.values())
    [container] = [c for c in axes.containers if isinstance(c, BarContainer)]
    assert container.errorbar is not None
    half = [np.ptp(segment[:, 0]) / 2 for segment in container.errorbar.lines[2][0].get_segments()]
    assert half == pytest.approx([np.mean([r["importance_std"][name] for r in reports]) for name in shown])
