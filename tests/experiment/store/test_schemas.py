"""Runs that earlier versions recorded: readable, comparable with today's, kept and continued.

`fixtures/made_by_3123855/` was made before settings were renamed and cut; see its README. `schema_1/` was
made by revision 757f17b: the tiny study, seed 0, with independent, lntrust, lntrust under Weighted Majority
(whose weights were not normalised then), and a method of one's own; independent on a graph from a file; a log
of trials.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from stopped_runs import Make, read_summary

from lntrust import LNTrustError, load_study
from lntrust.experiment import Run
from lntrust.experiment.store import (
    fingerprint,
    identities,
    key_of,
    read_runs,
    slug,
    superseded_key,
    write_collection,
)
from lntrust.experiment.store.identity import stage1_file
from lntrust.experiment.store.schemas import SCHEMA, upgrade
from lntrust.experiment.store.worlds import world_file
from lntrust.experiment.tune import Search
from lntrust.learners.views import Views
from lntrust.report.rows import rows_of

SCHEMA_1 = Path(__file__).parents[1] / "schema_1"
HALVES = """from lntrust.methods import Method


class Halves(Method):
    about = "labelled steps in every second round"

    def round(self, site, state, t):
        return super().round(site, state, t) if t % 2 else state
"""
OLD = Path(__file__).parents[2] / "fixtures" / "made_by_3123855"


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """A JSON value as a table from paths to what has no parts."""
    if not isinstance(value, dict | list):
        return {path: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return {where: what for key, part in parts for where, what in flat(part, f"{path}.{key}").items()}


def near(table: dict[str, Any]) -> dict[str, Any]:
    """Another processor rounds otherwise: a tie that tips moves a score by an example, and who is asked."""
    return {
        where: pytest.approx(what, rel=0.3 if where.startswith(".bytes") else 0.02, abs=0.05, nan_ok=True)
        if isinstance(what, float)
        else what
        for where, what in table.items()
    }


@pytest.mark.usefixtures("clean_checkout")
class TestRenamedAndCutSettings:
    """The same runs under today's names: found by the same folder, whatever a setting is called now."""

    def test_folders_and_their_collection_are_read_under_todays_names(self) -> None:
        folders, collected = read_runs([OLD / "runs"]), read_runs([OLD / "collection.parquet"])
        assert [(r.key, r.identity) for r in folders] == [(r.key, r.identity) for r in collected]
        renamed = [r.identity for r in folders if r.study == "old-names"]
        for part in (renamed[0]["answerer"], renamed[1]["settings"]):
            assert (part["typical_margin"], part["prior_wins"]) == (True, 0.25)
            assert not {"usual_lead", "head_start"} & set(part)
        for file in OLD.rglob("run.json"):
            today = upgrade(json.loads(file.read_text()))
            asked_for = {name: part for name, part in today.items() if name not in ("versions", "hardware")}
            assert slug(asked_for).name == file.parent.name

    def test_settings_that_are_gone_still_tell_rows_apart(self) -> None:
        rows = {row.label for row in rows_of(read_runs([OLD / "runs"]))["tiny"]}
        assert len(rows) == 9
        for gone in ("look_back = 0.8", "calibrate = True", "answer_k = 2", "training_gate = evidence"):
            assert any(gone in label for label in rows), rows

    def test_finished_runs_are_kept(self, lntrust: Any, tmp_path: Path) -> None:
        shutil.copytree(OLD / "runs", tmp_path / "runs")
        again = ["--device", "cpu", "--out", tmp_path / "runs", "--json"]
        old = ["old-names.toml", "--method"]
        for words in (["tiny.toml"], [*old, "lntrust"], [*old, "independent", "--set", "deploy=trust"]):
            got = lntrust("run", OLD / "studies" / words[0], *words[1:], *again)
            assert got.code == 0, got.err
            assert "(made by revision 3123855123b9 of lntrust); --fresh makes them anew" in got.err
            for summary in map(json.loads, got.out.splitlines()):
                kept = (OLD / "runs" / summary["study"] / summary["method"]).glob("*/summary.json")
                assert summary in [json.loads(file.read_text()) for file in kept]

    def test_one_that_was_stopped_goes_on_to_the_same_end(self, lntrust: Any, tmp_path: Path) -> None:
        shutil.copytree(OLD / "begun" / "stopped", tmp_path / "runs")
        method = ["--method", "lntrust+best", "--device", "cpu", "--out", tmp_path / "runs"]
        assert lntrust("run", OLD / "studies" / "begun.toml", *method).code == 0
        (folder,) = tmp_path.rglob("lntrust+best/seed-*")
        (completed,) = OLD.glob("begun/completed/begun/lntrust+best/seed-*")
        assert folder.name == completed.name
        assert flat(read_summary(folder)) == near(flat(read_summary(completed)))
        for name in ("rounds", "trust"):
            ours, theirs = (pq.read_table(place / f"{name}.parquet") for place in (folder, completed))
            assert ours.schema == theirs.schema
            assert flat(ours.to_pydict()) == near(flat(theirs.to_pydict()))

    def test_with_a_setting_that_is_gone_nothing_is_continued(self, lntrust: Any) -> None:
        got = lntrust("run", OLD / "studies" / "tiny.toml", "--set", "methods.lntrust.look_back=0.8")
        assert got.code == 2
        assert "look_back = 0.8: no longer there" in got.err

    @pytest.mark.parametrize(
        ("name", "methods"),
        [("tiny", {"independent": 2, "lntrust": 2, "lntrust+best": 2}), ("old-names", {"lntrust": 1})],
    )
    def test_trials_count_as_done(self, name: str, methods: dict[str, int], views: Views) -> None:
        study, log = load_study(OLD / "studies" / f"{name}.toml"), OLD / "tune" / f"{name}-tuned.jsonl"
        assert {m: len(Search(study, m, 0, views, log).lines) for m in methods} == methods


def test_the_first_schema_is_read_as_it_stands() -> None:
    records = read_runs([SCHEMA_1])
    assert [(r.study, r.method, r.seed) for r in records] == [
        ("roads", "independent", 0), ("tiny", "independent", 0), ("tiny", "lntrust", 0),
        ("tiny", "lntrust", 0), ("tiny", "own_halves:Halves", 0),
    ]  # fmt: skip
    for record in records:
        assert record.identity["content"] == {"schema": 2}, "no later correction speaks of them"
        assert len(record.world["kinds"]) == 5
        assert record.rounds.num_rows == 5


def test_old_and_new_seeds_make_one_row(lntrust: Any, make: Make, tmp_path: Path) -> None:
    """Those of schema 1 and seed 1 of the same, made now; from their folders and collected."""
    both, collection = tmp_path / "both", tmp_path / "all.parquet"
    shutil.copytree(SCHEMA_1, both)
    for method, *sets in (
        ("independent",), ("lntrust",), ("lntrust", "methods.lntrust.weighting=weighted_majority"),
    ):  # fmt: skip
        make(*sets, method=method, seed=1, into="both")()
    records = read_runs([both])
    assert {row.label: row.seeds for row in rows_of(records)["tiny"]} == {
        "independent": [0, 1],
        "lntrust, weighting = trust": [0, 1],
        "lntrust, weighting = weighted_majority (superseded)": [0],
        "lntrust, weighting = weighted_majority": [1],
        "own_halves:Halves": [0],
    }
    write_collection(records, collection)
    assert [r.key for r in read_runs([collection])] == [r.key for r in records]
    shown = lntrust("compare", collection)
    assert shown.code == 0, shown.err
    assert "superseded" in shown.out
    assert lntrust("report", collection, "-o", tmp_path / "page.html").code == 0


# Corrected by now, each with the schema that did it.
CORRECTED = [
    ("lntrust", ("methods.lntrust.weighting=linucb",), 3),
    ("independent", ("deploy=trust", "methods.lntrust.weighting=linucb"), 3),
    ("fedmd", (), 3),
    ("mean_teacher", (), 3),
    ("mean_teacher", ("deploy=trust",), 3),
    ("lntrust", ("methods.lntrust.weighting=weighted_majority",), 2),
]


def identity_of(method: str, *sets: str, schema: int | None = None) -> dict[str, Any]:
    """Today's, or as it was recorded under this schema."""
    (of,) = identities(load_study("digits", sets), method, [0], "cpu")
    return of if schema is None else {**of, "content": {**of["content"], "schema": schema}}


@pytest.mark.parametrize(("method", "sets", "schema"), CORRECTED)
def test_a_corrected_run_is_another_and_the_old_one_says_so(
    method: str, sets: tuple[str, ...], schema: int
) -> None:
    today, before = identity_of(method, *sets), identity_of(method, *sets, schema=schema - 1)
    assert today["content"]["schema"] == schema
    assert upgrade(today) == today
    assert (fingerprint(before) == fingerprint(today), key_of(upgrade(before)) == key_of(today)) == (
        False,
    ) * 2
    assert " (superseded)" in json.dumps(upgrade(before))
    assert upgrade(upgrade(before)) == upgrade(before), "as collections keep it"
    assert superseded_key(today) == superseded_key(upgrade(before)) is not None


@pytest.mark.parametrize(
    ("method", "sets"),
    [
        ("independent", ()), ("lntrust", ()), ("lntrust+best", ()), ("d_psgd", ()),
        ("dml", ("deploy=trust",)),
        ("lntrust", ("methods.lntrust.weighting=hedge",)),
    ],
)  # fmt: skip
def test_what_was_not_corrected_keeps_its_name(method: str, sets: tuple[str, ...]) -> None:
    today = identity_of(method, *sets)
    assert today == identity_of(method, *sets, schema=2)
    assert key_of(upgrade(today)) == key_of(upgrade(identity_of(method, *sets, schema=1)))
    assert superseded_key(today) is None


def test_a_corrected_method_shares_worlds_and_stage_1_with_the_others() -> None:
    plain, corrected = identity_of("independent"), identity_of("mean_teacher")
    assert plain["content"] != corrected["content"]
    assert world_file(plain) == world_file(corrected)
    assert stage1_file([plain], {}) == stage1_file([corrected], {})


class TestWhatTheThirdSchemaCorrected:
    """The paper's reading was half of it, and its split by class rounded down."""

    FOLDER = Path(__file__).parents[3] / "benchmarks" / "results" / "reproduction"

    def test_old_runs_are_read_and_say_what_they_were(self) -> None:
        every = read_runs([self.FOLDER / "runs-ablations.parquet"])
        records = [record for record in every if "reading" in record.identity["study"]]
        studies = [r.identity["study"] for r in records]
        splits = ("random", "per_class_rounded (superseded)")
        found = {(study["reading"], study["partition"]["split"]) for study in studies}
        assert found == {("paper (superseded)", split) for split in splits}
        for row in [row for rows in rows_of(records).values() for row in rows]:
            assert row.test_selected == (row.first.method == "lntrust"), "as they were shown"

    def test_none_of_them_stands_in_the_row_of_a_new_one(self, make: Make, tmp_path: Path) -> None:
        make("reading=paper", into="new")()
        make("partition.draws=overlapping", into="old")()
        (file,) = (tmp_path / "old").rglob("run.json")
        identity = json.loads(file.read_text())
        assert identity["content"]["schema"] == 2
        file.write_text(json.dumps({**identity, "study": {**identity["study"], "reading": "paper"}}))
        old = upgrade(json.loads(file.read_text()))
        assert old["study"]["reading"] == "paper (superseded)"
        assert upgrade(old) == old, "as a collection keeps it"
        (new,) = read_runs([tmp_path / "new"])
        assert (new.identity["study"]["reading"], new.identity["content"]["schema"]) == ("paper", SCHEMA)


def test_one_from_the_future_is_refused() -> None:
    identity = json.loads(next(SCHEMA_1.rglob("run.json")).read_text())
    with pytest.raises(LNTrustError, match=f"schema {SCHEMA + 1}: recorded by a newer lntrust"):
        upgrade({**identity, "content": {"schema": SCHEMA + 1}})


def test_of_old_and_new_the_one_that_names_its_data_counts(tmp_path: Path, make: Make, views: Views) -> None:
    shutil.copytree(SCHEMA_1, tmp_path / "both")
    made = make(method="independent", into="both")()
    (record,) = [r for r in read_runs([tmp_path / "both" / "tiny"]) if r.method == "independent"]
    assert record.summary == made
    assert record.identity["content"]["data"] == views.dataset.digest(["pixels"])


def test_with_code_or_files_of_ones_own_they_stand_apart(
    tmp_path: Path, tiny_file: Path, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what these were when the old ones were made, though all of it may be the same."""
    monkeypatch.chdir(tmp_path)
    Path("own_halves.py").write_text(HALVES)
    Path("roads.txt").write_text("0 1\n1 2\n2 3\n3 4\n")
    Path("roads.toml").write_text('inherits = "tiny.toml"\ngraph.kind = "file"\ngraph.file = "roads.txt"\n')
    shutil.copytree(SCHEMA_1, tmp_path / "both")
    for study, method in ((tiny_file, "own_halves:Halves"), (Path("roads.toml"), "independent")):
        Run(load_study(study), method, 0, views, folder=tmp_path / "both")()
    studies = rows_of(read_runs([tmp_path / "both"]))
    old, new = (row for row in studies["tiny"] if row.first.method == "own_halves:Halves")
    assert old.label == "own_halves:Halves"
    assert new.label.startswith("own_halves:Halves, own_halves.py ")
    assert old.independent is not None
    assert old.independent == new.independent, "which has no code of its own"
    old, new = studies["roads"]
    assert old.label == "independent"
    assert new.label.startswith("independent, roads.txt ")
    assert (old.independent, new.independent) == (old.records, new.records)


@pytest.mark.usefixtures("clean_checkout")
@pytest.mark.parametrize("sets", [("lntrust",), ("independent", "deploy=trust")])
def test_trials_are_kept_but_for_those_of_weighted_majority(
    sets: tuple[str, ...], tiny: Any, views: Views
) -> None:
    def kept(weighting: str) -> int:
        study = tiny(*sets[1:], f"methods.lntrust.weighting={weighting}")
        return len(Search(study, sets[0], 0, views, SCHEMA_1 / "tuned.jsonl").lines)

    assert (kept("trust"), kept("weighted_majority")) == (1, 0)
