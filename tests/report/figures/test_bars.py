"""Bars: what is sent, and which features matter."""

import dataclasses

import matplotlib
import numpy as np
import pytest
from drawn import bars, by_method, changed, footnote, texts
from matplotlib.container import BarContainer

from lntrust import LNTrustError
from lntrust.report.claims import short
from lntrust.report.figures.draw import draw
from lntrust.report.figures.style import bytes_text, plain_text
from lntrust.report.rows import Row


def test_communication_shows_both_countings(rows: list[Row]) -> None:
    figure = draw("communication", rows, title="small")
    row = by_method(rows)
    paper, everything = figure.axes
    assert row["lntrust"].test is not None
    assert row["d_psgd"].test is not None
    trust, average = row["lntrust"].test.mean, row["d_psgd"].test.mean
    assert bars(paper) == pytest.approx(
        {
            "LNTrust": trust / row["lntrust"].gigabytes("reply"),
            "D-PSGD": average / row["d_psgd"].gigabytes("parameters"),
        }
    )
    assert bars(everything) == pytest.approx(
        {"LNTrust": trust / row["lntrust"].gigabytes(), "D-PSGD": average / row["d_psgd"].gigabytes()}
    )
    assert any(text.startswith(f"{short(trust)} · ") for text in texts(paper))
    assert bytes_text(1e9 * row["lntrust"].gigabytes()) in " ".join(texts(everything))  # too little for GB
    assert "left out: Independent, Uniform" in footnote(figure)


def test_communication_is_grey_for_parameters_and_longest_on_top(rows: list[Row]) -> None:
    axes = draw("communication", rows, title="small").axes[0]
    lengths = list(bars(axes).values())
    assert lengths == sorted(lengths)
    colours = {
        name: matplotlib.colors.to_hex(p.get_facecolor())
        for name, p in zip(bars(axes), axes.patches, strict=True)
    }
    assert colours == {"LNTrust": "#d55e00", "D-PSGD": "#8a8f98"}


def test_communication_takes_a_logarithm_only_where_bars_differ_much(rows: list[Row]) -> None:
    row = by_method(rows)["d_psgd"]
    sent = row.first.summary["bytes"]
    hundred = {k: 100 * v for k, v in sent.items() if isinstance(v, int)}
    more = [changed(record, bytes=sent | hundred) for record in row.records]
    alike = draw("communication", [row, dataclasses.replace(row, label="again")], title="")
    apart = draw("communication", [row, dataclasses.replace(row, label="more", records=more)], title="")
    assert [axes.get_xscale() for axes in alike.axes] == ["linear", "linear"]
    assert [axes.get_xscale() for axes in apart.axes] == ["log", "log"]
    gigabytes = 100 * sent["total"] / 6 / 1e9
    assert gigabytes > 0.001
    assert f"{plain_text(gigabytes)} GB" in " ".join(texts(apart.axes[1]))


def test_communication_of_silent_methods_is_refused(rows: list[Row]) -> None:
    silent = [row for row in rows if row.gigabytes() == 0]
    for kind in ("communication", "bytes"):
        with pytest.raises(LNTrustError, match=rf"figure {kind} of small: nobody sends anything"):
            draw(kind, silent, title="small")  # type: ignore[arg-type]


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
