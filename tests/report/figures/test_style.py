"""Looks: one method, one colour, wherever it stands."""

import dataclasses
import itertools

import matplotlib
import numpy as np
import pytest
from drawn import footnote
from made_up import by_method, changed, each, preset, renamed, variant

from lntrust.methods.lntrust.presets import PRESETS
from lntrust.report.figures import draw
from lntrust.report.figures.style import looks_of, name_of, spaced
from lntrust.report.rows import Row


def test_names(rows: list[Row]) -> None:
    row = by_method(rows)["d_psgd"]
    labels = ("d_psgd", "d_psgd, lr = 0.1", "d_psgd → trust", "Ours", "d_psgds")
    assert [name_of(dataclasses.replace(row, label=label)) for label in labels] == [
        "D-PSGD", "D-PSGD, lr = 0.1", "D-PSGD → trust", "Ours", "d_psgds",
    ]  # fmt: skip


@pytest.mark.parametrize(("others", "along"), [(1, False), (7, False), (2, True)])
def test_of_several_lntrusts_the_published_one_stands_out(rows: list[Row], others: int, along: bool) -> None:
    """Whatever its settings are, and whether or not they go along an ablation."""
    several = [variant(rows[-1], f"top {k + 1}", x=float(k) if along else None) for k in range(others)]
    ours = variant(rows[-1], "all", x=99.0 if along else None, budget=7)
    ours = dataclasses.replace(ours, published=True)
    looks = looks_of([*several, ours])
    assert [look.bold for look in looks] == [False] * others + [True]
    assert looks[-1].colour == "#d55e00"
    colours = [np.array(matplotlib.colors.to_rgb(look.colour)) for look in looks]
    assert min(np.abs(a - b).max() for a, b in itertools.combinations(colours, 2)) > 0.2
    assert len({look.marker for look in looks}) == others + 1
    shown = f"one of {others + 1} LNTrust rows: all; "
    assert footnote(draw("importance", [*several, ours], title="")).startswith(shown + "mean")
    assert footnote(draw("trust", [*several, ours], title="")).startswith(shown)


def test_one_called_lntrust_stands_out_where_none_is_published(rows: list[Row]) -> None:
    both = [variant(rows[-1], "LNTrust, hard labels"), variant(rows[-1], "LNTrust")]
    assert [look.bold for look in looks_of(both)] == [False, True]


def test_who_does_not_report_importance_is_passed_over(rows: list[Row]) -> None:
    ours = by_method(rows)["lntrust"]
    report = {k: v for k, v in ours.first.summary["method_report"].items() if k != "importance"}
    silent = dataclasses.replace(each(ours, changed, method_report=report), label="Hedge", published=True)
    both = [silent, dataclasses.replace(ours, label="learned")]
    assert footnote(draw("importance", both, title="")).startswith("one of 2 LNTrust rows: learned")
    assert footnote(draw("trust", both, title="")).startswith("one of 2 LNTrust rows: Hedge")


def test_methods_of_ones_own_have_looks_that_stay_and_among_many_a_variant_is_a_shade(
    rows: list[Row],
) -> None:
    mine = [renamed(rows[0], name) for name in ("mine:One", "mine:Other")]
    assert looks_of(mine) == looks_of([*rows, *mine])[-2:]
    assert len({look.colour for look in looks_of([*rows, *mine])}) == len(rows) + 2
    methods = ("independent", "uniform", "dml", "desa", "fedmd", "fedpae", "d_psgd")
    many = [renamed(rows[0], method) for method in methods]
    looks = looks_of([*many, variant(rows[-1], "LNTrust"), variant(rows[-1], "hard")])
    assert len({look.colour for look in looks}) == 9
    pale, strong = (np.array(matplotlib.colors.to_rgb(look.colour)) for look in (looks[-1], looks[-2]))
    assert (pale >= strong).all()


def test_presets_are_lntrusts_family_and_apart_from_it(rows: list[Row]) -> None:
    """Bold as it is, of a warm colour, each with a marker of its own; also where print is grey."""
    ours = [by_method(rows)["lntrust"], *(preset(rows, name) for name in PRESETS)]
    assert [name_of(row) for row in ours] == ["LNTrust", "LNTrust, lean", "LNTrust, safe", "LNTrust, best"]
    assert name_of(variant(ours[1], "lntrust+lean, budget = 5")) == "LNTrust, lean, budget = 5"
    looks = looks_of([*rows[:-1], *ours])[-len(ours) :]
    assert looks == looks_of(ours)
    assert looks[0] == looks_of(rows)[-1]  # LNTrust itself is as it was
    assert all(look.bold for look in looks)
    assert len({look.marker for look in looks}) == len(looks)
    colours = [np.array(matplotlib.colors.to_rgb(look.colour)) for look in looks]
    assert all(red > green and red > blue for red, green, blue in colours)
    greys = [float(colour @ [0.299, 0.587, 0.114]) for colour in colours]
    assert min(abs(a - b) for a, b in itertools.combinations(greys, 2)) > 0.12


def test_spaced() -> None:
    def placed(*wanted: float) -> list[float]:
        return spaced(np.array(wanted), 0.1, 0.0, 1.0).tolist()

    assert placed(0.1, 0.5, 0.9) == pytest.approx([0.1, 0.5, 0.9])  # enough room: where they are
    assert placed(0.5, 0.5) == pytest.approx([0.45, 0.55])  # as near as possible
    assert placed(0.52, 0.5) == pytest.approx([0.56, 0.46])  # the order is kept
    assert placed(1.0, 1.0, 1.0) == pytest.approx([0.8, 0.9, 1.0])  # none leaves
    crowd = np.sort(spaced(np.zeros(20), 0.1, 0.0, 1.0))
    assert np.diff(crowd) == pytest.approx(np.full(19, 0.1))  # too many: apart all the same
