"""Figures: what is drawn are the runs' numbers, and drawing is repeatable."""

import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation, Text

from lntrust import LNTrustError, load_study
from lntrust.experiment.collection import Record, read_runs
from lntrust.experiment.reproduction import FigureSettings
from lntrust.experiment.run import Run
from lntrust.learners.views import Views
from lntrust.report import figure_lines
from lntrust.report.claims import short
from lntrust.report.comparison import Row, rows_of
from lntrust.report.figure_lines import course
from lntrust.report.figure_style import bytes_text, looks_of, name_of, plain_text, short_text, spread_out
from lntrust.report.figure_trust import choose_node
from lntrust.report.figures import all_figures, draw, save, section_figures
from lntrust.report.sections import Section
from lntrust.report.topology import layout, scene_of_record, scene_of_world
from lntrust.world import build_world, load_dataset

STUDY = """
inherits = "digits"
graph.nodes = 6
partition.labelled = 300
[training]
stage1_rounds = 2
stage2_rounds = 4
refresh = 2
[evaluation]
every = 2
checkpoint_every = 6
[methods.lntrust]
budget = 20
[[population.learners]]
name = "linear"
kind = "linear"
view = "pixels"
[[population.learners]]
name = "mlp"
kind = "mlp"
view = "pixels"
options = { hidden = 8 }
"""
METHODS = ("independent", "uniform", "d_psgd", "lntrust")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, views: Views) -> Path:
    """Two seeds of four methods: six nodes, linear heads and small networks in turn."""
    path = tmp_path_factory.mktemp("figures")
    (path / "small.toml").write_text(STUDY, "utf-8")
    study = load_study(path / "small.toml")
    for method in METHODS:
        for seed in (0, 1):
            Run(study, method, seed, views, folder=path / "runs")()
    return path / "runs"


@pytest.fixture(scope="session")
def records(folder: Path) -> list[Record]:
    return read_runs([folder])


@pytest.fixture
def rows(records: list[Record]) -> list[Row]:
    return rows_of(records)["small"]


def by_method(rows: Sequence[Row]) -> dict[str, Row]:
    return {row.first.method: row for row in rows}


def one_seed(row: Row) -> Row:
    return dataclasses.replace(row, records=row.records[:1], independent=None)


def changed(record: Record, **summary: Any) -> Record:
    """The same run with another summary."""
    return dataclasses.replace(record, summary={**record.summary, **summary})


def texts(axes: Axes) -> list[str]:
    return [note.get_text() for note in axes.texts if isinstance(note, Annotation)]


def bars(axes: Axes) -> dict[str, float]:
    """Lengths of lying bars by the names beside them."""
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    [container] = [c for c in axes.containers if isinstance(c, BarContainer)]
    return dict(zip(names, [patch.get_width() for patch in container], strict=True))


def footnote(figure: Figure) -> str:
    return " ".join(figure.get_supxlabel().split())


# -- communication ---------------------------------------------------------------------------------


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
    assert f"{plain_text(row['lntrust'].gigabytes())} GB" in " ".join(texts(everything))
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
    more = [changed(r, bytes={k: 100 * v for k, v in sent.items() if k != "by_phase"}) for r in row.records]
    alike = draw("communication", [row, dataclasses.replace(row, label="again")], title="")
    apart = draw("communication", [row, dataclasses.replace(row, label="more", records=more)], title="")
    assert [axes.get_xscale() for axes in alike.axes] == ["linear", "linear"]
    assert [axes.get_xscale() for axes in apart.axes] == ["log", "log"]


def test_communication_of_silent_methods_is_refused(rows: list[Row]) -> None:
    silent = [row for row in rows if row.gigabytes() == 0]
    for kind in ("communication", "bytes"):
        with pytest.raises(LNTrustError, match=rf"figure {kind} of small: nobody sends anything"):
            draw(kind, silent, title="small")  # type: ignore[arg-type]


# -- curves ------------------------------------------------------------------------------------------


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
    assert f"at the end, Test of “LNTrust”: {short(float(np.std(ends)))}" in footnote(figure)


def test_each_curve_is_marked_at_rounds_of_its_own(rows: list[Row]) -> None:
    lines = draw("curves", rows[:2], title="small").axes[0].lines
    marks = [line.get_markevery() for line in lines if line.get_linestyle() == "-"]
    assert marks == [[0, 1, 2], [0, 1, 2]]  # three rounds were evaluated
    long = [figure_lines.Course(*[np.arange(25.0)] * 4)] * 2
    first, second = (figure_lines._marks(path, number, 2) for number, path in enumerate(long))
    assert (len(first), len(second), set(first) & set(second)) == (4, 4, set())


def renamed(row: Row, method: str) -> Row:
    """The same runs under another method's name."""
    records = [dataclasses.replace(r, identity={**r.identity, "method": method}) for r in row.records]
    return dataclasses.replace(row, records=records)


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


# -- bytes -------------------------------------------------------------------------------------------


def test_bytes_end_at_all_that_was_sent(rows: list[Row]) -> None:
    [axes] = draw("bytes", rows, title="small").axes
    lines = {str(line.get_label()): line for line in axes.lines}
    assert axes.get_xscale() == "log"
    for method in ("d_psgd", "lntrust"):
        row = by_method(rows)[method]
        line = lines[name_of(row)]
        x, y = np.asarray(line.get_xdata())[-1], np.asarray(line.get_ydata())[-1]
        assert x == pytest.approx(1e9 * row.gigabytes())
        assert y == pytest.approx(np.mean([record.summary["test"] for record in row.records]))
        assert line.get_markevery() == [-1]
    alone = np.asarray(lines["Independent"].get_ydata())
    assert alone == pytest.approx(np.full(2, by_method(rows)["independent"].spread("test")[0]))  # type: ignore[index]


def test_what_is_sent_after_the_last_round_counts(rows: list[Row]) -> None:
    """As when models are fetched once training is over."""
    quiet = by_method(rows)["uniform"]
    sent = {**quiet.first.summary["bytes"], "total": 6_000_000}
    late = dataclasses.replace(quiet, records=[changed(record, bytes=sent) for record in quiet.records])
    [axes] = draw("bytes", [late], title="small").axes
    assert np.asarray(axes.lines[0].get_xdata()) == pytest.approx([1_000_000])


def test_the_legend_is_in_the_order_of_the_ends(rows: list[Row]) -> None:
    [axes] = draw("bytes", rows, title="small").axes
    legend = axes.get_legend()
    assert legend is not None
    named = {name_of(row): float(course(row, "test").mean[-1]) for row in rows}
    shown = [named[text.get_text()] for text in legend.get_texts()]
    assert shown == sorted(shown, reverse=True)


# -- ablation ----------------------------------------------------------------------------------------


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


# -- importance and trust ----------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", ["importance", "trust"])
def test_without_lntrust_there_is_no_trust(rows: list[Row], kind: Any) -> None:
    with pytest.raises(LNTrustError, match="LNTrust was not run"):
        draw(kind, [row for row in rows if row.first.method != "lntrust"], title="small")


def with_trust(record: Record, node: int, weights: dict[str, float], together: list[bool]) -> Record:
    report = record.summary["method_report"]
    trust = [weights if i == node else each for i, each in enumerate(report["trust"])]
    return changed(record, method_report={**report, "trust": trust, "together": together})


def arrows(figure: Figure) -> list[str]:
    axes = figure.subfigs[0].axes[0]
    return sorted(str(patch.get_gid()) for patch in axes.patches if isinstance(patch, FancyArrowPatch))


def test_trust_has_an_arrow_for_each_neighbour_with_weight(rows: list[Row]) -> None:
    row = by_method(rows)["lntrust"]
    record = row.first
    scene = scene_of_record(record)
    node = int(scene.degrees.argmax())
    near = [int(j) for j in record.summary["method_report"]["trust"][node] if int(j) != node]
    assert near == scene.neighbours(node)
    assert len(near) > 2
    given = {str(node): 0.496, **{str(j): 0.0 for j in near}, str(near[0]): 0.46, str(near[1]): 0.04}
    told = with_trust(record, node, given | {str(near[2]): 0.004}, [True] * 6)
    figure = draw("trust", [dataclasses.replace(row, records=[told])], title="small", node=node)
    assert arrows(figure) == sorted(f"arrow-{j}" for j in near[:2])
    axes = figure.subfigs[0].axes[0]
    assert {".460", ".040", "on itself .496"} <= set(texts(axes))
    assert ".004" not in texts(axes)
    assert {str(j) for j in near} <= set(texts(axes))  # who is not trusted is there, too
    width = {p.get_gid(): p.get_linewidth() for p in axes.patches if isinstance(p, FancyArrowPatch)}
    assert width[f"arrow-{near[0]}"] > width[f"arrow-{near[1]}"]
    own, test = (record.summary["per_node"][k][node] for k in ("self", "test"))
    assert f"Test {short(test)} vs Self {short(own)}" in " ".join(figure.get_suptitle().split())


def test_trust_histograms_are_shares_of_known_labels(rows: list[Row]) -> None:
    record = by_method(rows)["lntrust"].first
    figure = draw("trust", rows, title="small", node=1)
    first = figure.subfigs[1].axes[0]
    counts = np.array(record.world["train"][1]) + np.array(record.world["validation"][1])
    assert [patch.get_height() for patch in first.patches[:10]] == pytest.approx(  # type: ignore[attr-defined]
        (counts / counts.sum()).tolist()
    )


def test_a_node_that_is_not_there_is_refused(rows: list[Row]) -> None:
    with pytest.raises(LNTrustError, match="node 6: there are nodes 0 to 5 in small"):
        draw("trust", rows, title="small", node=6)


def test_whose_trust_is_shown(rows: list[Row]) -> None:
    record = by_method(rows)["lntrust"].first
    degrees = scene_of_record(record).degrees

    def chosen(together: Sequence[int], on_itself: Sequence[float] = (0.5,) * 6) -> tuple[int, str]:
        trust = [{str(i): own, str((i + 1) % 6): 1 - own} for i, own in enumerate(on_itself)]
        report = {**record.summary["method_report"], "trust": trust}
        return choose_node(
            changed(record, method_report=report | {"together": [i in together for i in range(6)]})
        )

    assert chosen([0, 4]) == (4, "")
    node, why = chosen([0, 1, 5])
    assert degrees[node] == max(degrees[i] for i in (0, 1, 5))
    assert why == (
        "the paper's node 4 answers alone; of 3 that answer together, "
        f"3 give others more than .1, and node {node} has most neighbours"
    )
    # Nobody learns anything from a node that trusts only itself, however many neighbours it has.
    assert chosen([0, 2, 4], [1.0, 1.0, 0.8, 1.0, 1.0, 1.0]) == (
        2,
        "the paper's node 4 hardly trusts others; of 3 that answer together, only node 2 gives others "
        "more than .1",
    )
    assert chosen([0, 2, 4], [1.0, 1.0, 1.0, 1.0, 0.95, 0.0]) == (
        4,
        "no node that answers together trusts others much; node 4 does most",
    )
    node, why = chosen([])
    assert degrees[node] == degrees.max()
    assert why.startswith("no node answers together")


def test_a_crowd_is_cut_and_told(rows: list[Row]) -> None:
    """Forty neighbours: the sixteen with most weight are drawn, the rest is added up."""
    row = by_method(rows)["lntrust"]
    record = row.first
    n = 41
    world = {
        **record.world, "kinds": [0] * n, "edges": [[0, j] for j in range(1, n)], "test": [1] * n,
        "train": [[1] * 10] * n, "validation": [[1] * 10] * n,
    }  # fmt: skip
    weights = {"0": 0.18, **{str(j): j / 1000 for j in range(1, n)}}
    report = {**record.summary["method_report"], "trust": [weights] * n, "together": [True] * n}
    scores = {**record.summary["per_node"], "test": [None] * n, "self": [0.5] * n, "test_pooled": None}
    crowd = dataclasses.replace(
        changed(record, method_report=report, per_node=scores), world_text=json.dumps(world)
    )
    figure = draw("trust", [dataclasses.replace(row, records=[crowd])], title="small", node=0)
    assert len(arrows(figure)) == 16
    rest = sum(j / 1000 for j in range(1, 25))
    assert f"24 more neighbours share {short(rest)}" in footnote(figure)
    assert "Test" not in figure.get_suptitle()  # the node has no test set


# -- graphs and maps ---------------------------------------------------------------------------------


def test_topology_of_a_run_is_that_of_its_world(records: list[Record], folder: Path) -> None:
    record = next(r for r in records if r.seed == 1)
    world = build_world(load_study(folder.parent / "small.toml"), load_dataset("digits"), 1)
    ours, theirs = scene_of_record(record), scene_of_world(world)
    assert ours.edges == theirs.edges
    assert ours.learners == theirs.learners
    assert (ours.kinds == theirs.kinds).all()
    assert (ours.sizes == theirs.sizes).all()
    assert (ours.degrees == world.degrees).all()
    assert layout(ours) == pytest.approx(layout(world))


def test_topology_has_every_node_and_edge(rows: list[Row]) -> None:
    figure = draw("topology", rows, title="small", seed=1)
    axes = figure.axes[0]
    scene = scene_of_record(rows[0].records[1])
    assert len(axes.lines) == len(scene.edges)
    assert sum(len(c.get_offsets()) for c in axes.collections) == scene.n  # type: ignore[arg-type]
    assert figure.get_suptitle() == "small, 6 nodes, seed 1"


def test_a_seed_that_was_not_run_is_replaced_and_told(rows: list[Row]) -> None:
    assert draw("topology", rows, title="small", seed=7).get_suptitle() == "small, 6 nodes, seed 0"


@pytest.fixture
def placed(rows: list[Row]) -> list[Row]:
    """The same runs, somewhere in Europe."""
    centres = [[46.0, 10.0], [48.0, 2.0], [52.0, 13.0], [40.0, -3.0], [60.0, 25.0], [38.0, 23.0]]
    tiles = {
        "latitude": [int(100 * a) for a, _ in centres], "longitude": [int(100 * b) for _, b in centres],
        "class": [0, 1, 2, 3, 4, 9], "node": list(range(6)), "per_degree": 100,
    }  # fmt: skip

    def put(record: Record) -> Record:
        world = {**record.world, "centres": centres, "tiles": tiles}
        return dataclasses.replace(record, world_text=json.dumps(world))

    return [dataclasses.replace(row, records=[put(r) for r in row.records]) for row in rows]


def test_map_is_true_to_places(placed: list[Row]) -> None:
    figure = draw("map", placed, title="small")
    left, right = figure.axes[:2]
    where = np.asarray(left.collections[0].get_offsets())
    assert sorted(map(tuple, where.tolist())) == sorted((b, a) for a, b in placed[0].first.world["centres"])
    nodes = np.concatenate([np.asarray(c.get_offsets()) for c in right.collections])
    assert sorted(map(tuple, nodes.tolist())) == sorted(map(tuple, where.tolist()))
    middle = math.radians(sum(left.get_ylim()) / 2)
    assert left.get_aspect() == pytest.approx(1 / math.cos(middle))
    # The boxes are as long as they are wide to be, so that nothing is squeezed.
    box, (west, east), (south, north) = left.get_window_extent(), left.get_xlim(), left.get_ylim()
    assert box.height / box.width == pytest.approx(
        (north - south) / (east - west) / math.cos(middle), rel=1e-3
    )
    assert len(left.patches) == 1  # the land


def test_nodes_without_places_have_no_map(rows: list[Row]) -> None:
    with pytest.raises(LNTrustError, match="its nodes have no places on a map"):
        draw("map", rows, title="small")


# -- sections and files ------------------------------------------------------------------------------


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


def test_one_method_alone_is_not_compared_by_what_it_sends(rows: list[Row]) -> None:
    ours = [variant(rows[-1], name) for name in ("a", "b")]
    assert kinds(Section("s", "s", "small", [rows[0], *ours])) == [
        "s-curves", "s-importance", "s-trust", "s-topology",
    ]  # fmt: skip


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


# -- looks -------------------------------------------------------------------------------------------


def test_names(rows: list[Row]) -> None:
    row = by_method(rows)["d_psgd"]
    labels = ("d_psgd", "d_psgd, lr = 0.1", "d_psgd → trust", "Ours", "d_psgds")
    assert [name_of(dataclasses.replace(row, label=label)) for label in labels] == [
        "D-PSGD", "D-PSGD, lr = 0.1", "D-PSGD → trust", "Ours", "d_psgds",
    ]  # fmt: skip


def test_a_method_looks_the_same_in_every_company(rows: list[Row]) -> None:
    alone = looks_of([by_method(rows)["uniform"]])[0]
    assert looks_of(rows)[[row.first.method for row in rows].index("uniform")] == alone
    assert len({(look.colour, look.marker) for look in looks_of(rows)}) == len(rows)


def variant(row: Row, label: str, x: float | None = None, **settings: Any) -> Row:
    def other(record: Record) -> Record:
        identity = {**record.identity, "settings": {**record.identity["settings"], **settings}}
        return dataclasses.replace(record, identity=identity)

    return dataclasses.replace(row, label=label, x=x, records=[other(record) for record in row.records])


@pytest.mark.parametrize("others", [1, 2, 7])
@pytest.mark.parametrize("along", [False, True])
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
    assert "rows" not in footnote(draw("importance", both[1:], title=""))


def test_who_does_not_report_importance_is_passed_over(rows: list[Row]) -> None:
    ours = by_method(rows)["lntrust"]
    report = {k: v for k, v in ours.first.summary["method_report"].items() if k != "importance"}
    silent = [changed(record, method_report=report) for record in ours.records]
    both = [
        dataclasses.replace(ours, label="Hedge", records=silent, published=True),
        dataclasses.replace(ours, label="learned"),
    ]
    assert footnote(draw("importance", both, title="")).startswith("one of 2 LNTrust rows: learned")
    assert footnote(draw("trust", both, title="")).startswith("one of 2 LNTrust rows: Hedge")


def test_among_many_methods_a_variant_is_a_shade(rows: list[Row]) -> None:
    methods = ("independent", "uniform", "dml", "desa", "fedmd", "fedpae", "d_psgd")
    many = [renamed(rows[0], method) for method in methods]
    looks = looks_of([*many, variant(rows[-1], "LNTrust"), variant(rows[-1], "hard")])
    assert len({look.colour for look in looks}) == 9
    pale, strong = (np.array(matplotlib.colors.to_rgb(look.colour)) for look in (looks[-1], looks[-2]))
    assert (pale >= strong).all()


def test_spread_out() -> None:
    def placed(*wanted: float) -> list[float]:
        return spread_out(np.array(wanted), 0.1, 0.0, 1.0).tolist()

    assert placed(0.1, 0.5, 0.9) == pytest.approx([0.1, 0.5, 0.9])  # enough room: where they are
    assert placed(0.5, 0.5) == pytest.approx([0.45, 0.55])  # as near as possible
    assert placed(0.52, 0.5) == pytest.approx([0.56, 0.46])  # the order is kept
    assert placed(1.0, 1.0, 1.0) == pytest.approx([0.8, 0.9, 1.0])  # none leaves
    assert placed() == []
    crowd = np.sort(spread_out(np.zeros(20), 0.1, 0.0, 1.0))
    assert np.diff(crowd) == pytest.approx(np.full(19, 0.1))  # too many: apart all the same


@pytest.mark.parametrize(
    ("value", "sent", "plain", "tick"),
    [
        (0.000776, "0 B", "0.00078", "0.000776"),
        (12.34, "12 B", "12.3", "12.3"),
        (999_900, "1 MB", "999,900", "1M"),
        (2.5e9, "2.5 GB", "2,500,000,000", "2,500M"),
        (10_000, "10 kB", "10,000", "10k"),
    ],
)
def test_numbers(value: float, sent: str, plain: str, tick: str) -> None:
    assert (bytes_text(value), plain_text(value), short_text(value)) == (sent, plain, tick)
