"""Which tables a heap of runs makes: the paper's as far as they were run, then the rest; and as Parquet."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from made_up import made, made_seeds, sending

from lntrust.experiment.reproduction import Claim, FigureSettings, Panel, Reproduction, RowSettings
from lntrust.experiment.store import Record
from lntrust.experiment.store.schemas import upgrade
from lntrust.report.rows import make_row
from lntrust.report.sections import SCHEMA, Section, arrow, panel_rows, sections_of
from lntrust.report.text import markdown

PANEL = Panel(
    title="all",
    study="digits",
    rows=[
        RowSettings(label="Independent", method="independent"),
        RowSettings(label="Plain mean", method="uniform", paper={"test": 0.7}),
        RowSettings(label="Ours", set={"methods.lntrust.sample": 77}, x=3.0, paper={"test": 0.8}),
    ],
    claims=[
        Claim(says="ours is best", above="Ours", below=["Independent", "Plain mean"]),
        Claim(says="the mean is better", above="Plain mean", below=["Ours"], ours=True),
    ],
)
SAMPLE = ["methods.lntrust.sample=77"]


def reproduction(*panels: Panel) -> Reproduction:
    return Reproduction(
        name="t", title="T", place="Table 9", claim="Ours.", differences="Seeds.", panels=panels
    )


def complete(seed: int = 0, device: str = "cpu") -> list[Record]:
    methods = [("independent", 0.7), ("uniform", 0.75), ("lntrust", 0.8)]
    return [made(method, seed, test, sets=SAMPLE, device=device) for method, test in methods]


def names(sections: list[Section]) -> list[tuple[str, list[str]]]:
    return [(section.name, [row.label for row in section.rows]) for section in sections]


def test_a_table_of_the_paper() -> None:
    (section,) = sections_of([*complete(0), *complete(1)], [reproduction(PANEL)])
    assert [row.label for row in section.rows] == ["Independent", "Plain mean", "Ours"]  # the paper's order
    assert (section.name, section.title, section.place, section.study) == ("t", "T", "Table 9", "digits")
    assert (section.claim, section.differences) == ("Ours.", "Seeds.")
    ours = section.rows[2]
    assert (ours.x, ours.paper, ours.difference is None) == (3.0, {"test": 0.8}, False)
    assert [verdict.outcome for verdict in section.verdicts] == ["holds", "does not hold"]
    assert [verdict.says for verdict in section.counted] == ["ours is best"], (
        "the other the paper does not say"
    )
    elsewhere = replace(section, rows=[replace(ours, records=[made(sets=["reading=paper"])])])
    assert elsewhere.counted == [], "and under another reading it is no claim of the paper's as we read it"


def test_more_than_half_is_enough_and_what_is_missing_is_told() -> None:
    (section,) = sections_of(complete()[1:], [reproduction(PANEL)])
    assert [row.label for row in section.rows] == ["Plain mean", "Ours"]
    assert section.verdicts[0].outcome == "not run"
    assert section.verdicts[0].words == "not run: Independent"
    panel = PANEL.model_copy(update={"rows": [*PANEL.rows, RowSettings(label="4", method="dml")]})
    half = sections_of(complete()[:2], [reproduction(panel)])
    assert names(half) == [("digits", ["independent", "uniform"])]


def test_what_is_in_no_table_stands_by_study_with_independent_beside() -> None:
    other, elsewhere = made("lntrust", sets=["methods.lntrust.sample=5"]), made("dml", study="wearables")
    found = sections_of([*complete(), other, elsewhere], [reproduction(PANEL)])
    assert names(found) == [
        ("t", ["Independent", "Plain mean", "Ours"]),
        ("digits", ["independent", "lntrust"]),
        ("wearables", ["dml"]),
    ]
    assert found[1].rows[1].difference is not None
    assert found[1].verdicts == []


def test_lntrust_and_every_baseline_stand_beside_presets() -> None:
    """As published, and in the worlds in which presets were run: of those seeds, at those settings."""
    panel = PANEL.model_copy(update={"rows": [*PANEL.rows, RowSettings(label="Published")]})
    whole = [*complete(0), *complete(1), made("lntrust", 0), made("lntrust", 1)]
    lean, elsewhere = made("lntrust+lean", 1), made("lntrust+best", sets=["training.lr=0.3"])
    for presets, beside in (([lean], ["uniform", "lntrust"]), ([elsewhere], [])):
        *_, section = sections_of([*whole, *presets], [reproduction(panel)])
        assert [row.label for row in section.rows] == ["independent", *beside, presets[0].method]
        assert [row.seeds for row in section.rows[1:]] == [[presets[0].seed]] * (len(beside) + 1)
    (section,) = sections_of(whole, [reproduction(panel)])
    assert section.name == "t"


def test_a_row_is_of_one_device_that_with_most_seeds() -> None:
    records = [*complete(0, "cpu"), *complete(0, "cuda"), *complete(1, "cuda")]
    for row in panel_rows(PANEL, records):
        assert {record.identity["device"] for record in row.records} == {"cuda"}
        assert row.seeds == [0, 1]
        assert row.independent, "which is of that device as well"
        assert {record.identity["device"] for record in row.independent} == {"cuda"}


def test_seeds_and_settings_are_as_asked_for() -> None:
    records = [record for seed in (0, 1, 2) for record in complete(seed)]
    (section,) = sections_of(records, [reproduction(PANEL)])  # and nothing is left over
    assert [row.seeds for row in section.rows] == [[0, 1, 2]] * 3
    assert [row.seeds for row in panel_rows(PANEL, records, [0, 2])] == [[0, 2]] * 3
    changed = [made(method, sets=[*SAMPLE, "training.lr=0.02"]) for method in ("independent", "uniform")]
    assert panel_rows(PANEL, changed) == []


CORRECTED = Panel(
    title="corrected",
    study="digits",
    rows=[
        RowSettings(label="Independent", method="independent"),
        RowSettings(label="FedMD", method="fedmd"),
        RowSettings(label="LinUCB", set={"methods.lntrust.weighting": "linucb"}),
    ],
)


def before(record: Record) -> Record:
    """As it was recorded and is read, made before its method was corrected, with the settings of then."""
    settings = {"lr": None, "budget": 1000, "strength": 1.0}
    then = record.identity | ({"settings": settings} if record.method == "fedmd" else {})
    content = {**record.identity["content"], "schema": 2}
    return replace(record, identity=upgrade({**then, "content": content}))


def test_superseded_runs_stand_in_for_those_to_come_and_say_so() -> None:
    linucb = {"sets": ["methods.lntrust.weighting=linucb"]}
    new = [made("independent", 0, 0.7), made("fedmd", 0, 0.8), made("lntrust", 0, 0.8, **linucb)]
    old = [before(made("fedmd", 0, 0.75)), before(made("lntrust", 0, 0.75, **linucb))]
    for records, superseded in (([new[0], *old], ["FedMD", "LinUCB"]), ([*new, *old], []), (new, [])):
        rows = panel_rows(CORRECTED, records)
        assert [row.label for row in rows] == ["Independent", "FedMD", "LinUCB"]
        assert [row.label for row in rows if row.superseded] == superseded
        assert all(row.difference is not None for row in rows[1:])
    (section,) = sections_of([new[0], *old], [reproduction(CORRECTED)])
    assert "Superseded, since runs of them give other results today: FedMD, LinUCB." in markdown(section)
    first, rest = sections_of([*new, *old], [reproduction(CORRECTED)])
    assert "uperseded" not in markdown(first)
    assert [row.label for row in rest.rows] == ["independent", "fedmd (superseded)", "lntrust"]
    assert "fedmd (superseded), lntrust." in markdown(rest)


def test_panels_are_sections_with_their_figures() -> None:
    other = PANEL.model_copy(update={"title": "fewer", "rows": PANEL.rows[:2], "claims": [], "x": "B"})
    both = reproduction(PANEL, other).model_copy(
        update={"figures": [FigureSettings(kind="bytes", panel=1), FigureSettings(kind="curves", panel=0)]}
    )
    first, second = sections_of(complete(), [both])
    assert (first.name, first.title) == ("t-1", "T: all")
    assert (second.name, second.title, second.x) == ("t-2", "T: fewer", "B")
    assert [figure.kind for figure in first.figures] == ["curves"]
    assert [figure.kind for figure in second.figures] == ["bytes"]


SENT = {"query": 40 * 10**9, "reply": 4 * 10**9, "framing": 4 * 10**8}


class TestArrow:
    """What its numbers are is held against the committed tables, too."""

    def test_a_flat_row_each(self) -> None:
        alone = made_seeds("independent", 0.7, 0.72)
        ours = made_seeds("lntrust", 0.8, 0.84, pooled=0.81, sent=SENT)
        paper = {"test": 0.865, "test_std": 0.017, "gain": 0.09}
        rows = [make_row("Independent", alone, alone), replace(make_row("Ours", ours, alone), paper=paper)]
        table = arrow([Section("t-1", "A title", "digits", rows)])
        assert table.schema.equals(SCHEMA)
        first, row = table.to_pylist()
        expected = {
            "section": "t-1", "label": "Ours", "seeds": [0, 1], "against_paper": "lower by .045",
            "paper_test": 0.865, "paper_self": None, "self_pooled_mean": None,
        }  # fmt: skip
        assert expected.items() <= row.items()
        numbers = {"test_std": 0.02, "gain_mean": 0.22, "p10": 0.81, "gb_total": 11.1,
                   "difference_low": 0.11 - 0.01 * 2**0.5, "accuracy_per_gb_reply": 0.82}  # fmt: skip
        assert {name: row[name] for name in numbers} == pytest.approx(numbers)
        below = {"below_independent": 0.0, "below_independent_own": 0.0, "below_independent_pooled": None,
                 "harmed": 0.0, "harmed_own_by_a_point": 0.0, "nodes_judged_on_own_tests": False}  # fmt: skip
        assert below.items() <= row.items()
        assert row["difference_t_low"] == pytest.approx(0.11 - 12.7062 * 0.01, abs=1e-5), "two seeds"
        assert first["accuracy_per_gb_reply"] is None, "nothing sent is no efficiency"
        assert arrow([]).equals(pa.Table.from_pylist([], schema=SCHEMA))

    def rows_of(self, *records: Record) -> list[dict[str, Any]]:
        rows = [make_row("r", [record], []) for record in records]
        return list(arrow([Section("s", "s", "digits", rows)]).to_pylist())

    def test_the_best_round_has_one_name_and_the_last_is_kept(self) -> None:
        paper = {"sets": ["reading=paper"]}
        alone, ours = self.rows_of(made("independent", test=0.7, **paper), made(best=0.9, **paper))
        assert (ours["test_mean"], ours["test_is_test_selected"]) == (0.9, True)
        assert (ours["best_round_test_selected_mean"], ours["last_round_test_mean"]) == (0.9, 0.8)
        assert (alone["test_mean"], alone["test_is_test_selected"]) == (0.7, False)

    def test_headers_and_the_asked_where_they_are_known(self) -> None:
        headers = {"query": 4 * 10**8, "reply": 0, "parameters": 0, "anchors": 0}
        old, new = self.rows_of(made(), sending(made(), asked_per_input=1.25, framing_by_kind=headers))
        assert (old["asked_per_input"], old["gb_headers_query"]) == (None, None)
        assert (new["asked_per_input"], new["gb_headers_query"]) == (1.25, pytest.approx(0.1))

    def test_what_diverged_has_no_price(self) -> None:
        [row] = self.rows_of(made(test=None, own=None, diverged=7, sent=SENT, sets=["training.refresh=4"]))
        assert json.loads(row["setting"])["study.training.refresh"] == 4
        assert (row["diverged"], row["seeds"]) == ("diverged at round 7", [])
        assert row["gb_total"] is row["bytes_per_answer"] is row["test_mean"] is None
