"""The paper's tables as files: they name runs that exist, and what is wrong with one is said."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lntrust.core.errors import LNTrustError
from lntrust.experiment.reproduction import (
    Claim,
    Reproduction,
    _toml,
    list_reproductions,
    load_reproduction,
)
from lntrust.experiment.store.identity import stage1_file
from lntrust.study.loading import value_of

NAMES = list(list_reproductions())
FEATURE = 'claims = [{ says = "s", above = "KL", below = ["degree"], on = "importance", of = "z" }]'
MINE = """
title = "T"
place = "here"
claim = "C"

[[panels]]
title = "P"
study = "digits"
rows = [{ label = "a", method = "independent" }, { label = "b", method = "uniform" }]
"""


@pytest.mark.parametrize("name", NAMES)
class TestShipped:
    def test_every_row_is_a_run(self, name: str) -> None:
        """Loading a study and a method checks all fields; equal rows of a panel would be one run."""
        one = load_reproduction(name)
        assert one.claim.endswith(".")
        assert one.place
        for panel in one.panels:
            keys = [panel.key(row) for row in panel.rows]
            assert len(set(keys)) == len(keys)

    def test_seeds_are_stacked_on_a_gpu_only(self, name: str) -> None:
        one = load_reproduction(name)
        stacked, single = one.tasks("cuda"), one.tasks("cpu")
        assert sum(len(task.seeds) for task in stacked) == len(single)
        assert {len(task.seeds) for task in single} == {1}
        folders = [[str(path).rpartition("-")[0] for task in tasks for path in task.folders]
                   for tasks in (stacked, single)]  # fmt: skip
        assert folders[0] == folders[1]


def rows_of(name: str) -> dict[str, str]:
    return {row.label: panel.key(row) for panel in load_reproduction(name).panels[:1] for row in panel.rows}


def test_tables_share_runs() -> None:
    """LNTrust as published is one run, in however many tables it stands."""
    ours = rows_of("sparse")["LNTrust"]
    labels = {"weighting": "Learned trust", "validation": "0.20", "budget": "B = 1000", "teachers": "all"}
    assert {rows_of(name)[label] for name, label in labels.items()} == {ours}
    assert rows_of("frequency")["F = 10"] == rows_of("gate")["gates on"] != ours


@pytest.mark.parametrize("reading", [0, 1])
def test_frequency_and_gate_have_one_stage_1(reading: int) -> None:
    files = set()
    for name in ("frequency", "gate"):
        panel = load_reproduction(name).panels[reading]
        assert panel.shared_stage1
        for row in panel.rows:
            task = panel.task(row, [0, 1, 2], "cuda")
            assert task.share_stage1
            files.add(stage1_file(task.identities, {"lr": 0.01}))
    assert len(files) == 1


@pytest.mark.parametrize("name", ["weighting", "validation", "budget", "frequency", "gate", "confidence"])
def test_an_ablation_stands_there_in_both_readings(name: str) -> None:
    ours, papers = load_reproduction(name).panels
    assert [row.label for row in papers.rows] == [row.label for row in ours.rows]
    assert [row.paper for row in papers.rows] == [row.paper for row in ours.rows]
    assert not papers.claims
    for row in ours.rows:
        study, other = ours.study_of(row), papers.study_of(row)
        assert (study.reading, other.reading) == ("honest", "paper")
        assert other.partition.val_fraction == study.partition.val_fraction
        assert other.training.stage2_rounds == 150 != study.training.stage2_rounds


@pytest.mark.parametrize("study", [0, 1])
def test_the_readings_are_a_step_apart_each(study: int) -> None:
    """From ours to the paper's: each row has all that the row before has; the last is the whole reading."""
    panel = load_reproduction("readings").panels[study]
    ours = [row for row in panel.rows if row.method == "lntrust"]
    _, _, *steps, last = ours
    for row, following in itertools.pairwise(steps):
        assert row.set.items() < following.set.items()
    assert last.set == {"reading": "paper"}
    whole, pieces = panel.study_of(last), panel.study_of(steps[-1])
    assert (whole.partition, whole.training) == (pieces.partition, pieces.training)


def claims_of(name: str) -> list[Claim]:
    return [claim for panel in load_reproduction(name).panels for claim in panel.claims]


def test_figures_have_claims_and_what_the_paper_does_not_say_is_marked() -> None:
    assert [claim.on for claim in claims_of("communication")] == ["per_gb"]
    assert [(claim.on, claim.above) for claim in claims_of("importance")] == [
        ("importance", "weighted probe accuracy"), ("importance", "KL"),
    ]  # fmt: skip
    blocks = [claim for claim in claims_of("geographic") if "tiles that touch" in claim.says][:1]
    ours = [claim for name in NAMES for claim in claims_of(name) if claim.ours]
    assert ours == [*blocks, *claims_of("teachers")]


def test_the_papers_reading_is_another_world() -> None:
    honest, paper = (load_reproduction("sparse").panels[k] for k in (0, 2))
    draws = [panel.study_of(panel.rows[0]).partition.draws for panel in (honest, paper)]
    assert draws == ["disjoint", "overlapping"]


class TestOnesOwn:
    def load(self, folder: Path, text: str) -> Reproduction:
        (folder / "mine.toml").write_text(text, "utf-8")
        return load_reproduction(str(folder / "mine.toml"))

    def test_a_file_and_its_study_beside_it(self, tiny_file: Path) -> None:
        one = self.load(tiny_file.parent, MINE.replace('"digits"', '"tiny.toml"'))
        assert (one.name, one.seeds) == ("mine", [0, 1, 2])
        assert one.panels[0].study_of(one.panels[0].rows[0]).graph.nodes == 5

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (("[[panels]]", "[["), "not a readable TOML file"),
            (('claim = "C"', ""), "claim"),
            (("[[panels]]", "[study]"), "for a study: lntrust run"),
            (('label = "b"', 'label = "a"'), "labels must differ"),
            (('method = "uniform"', 'methd = "uniform"'), "methd"),
            (("rows =", 'claims = [{ says = "s", above = "a", below = ["z"] }]\nrows ='), "which is no row"),
            (("rows =", 'claims = [{ says = "s" }]\nrows ='), "either above and below, or alike"),
            (("rows =", 'claims = [{ says = "s", alike = ["a"], to = "z" }]\nrows ='), "'z', which is no"),
            (("rows =", f"{FEATURE}\nrows ="), "speaks of 'z', which is no row"),
            (('title = "T"', 'title = "T"\nfigures = [{ kind = "curves", panel = 1 }]'), "panel 1"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_said(self, tmp_path: Path, change: tuple[str, str], words: str) -> None:
        assert change[0] in MINE
        with pytest.raises(LNTrustError, match=words):
            self.load(tmp_path, MINE.replace(*change))

    def test_an_unknown_name(self) -> None:
        must = r"did you mean sparse\? Must be all, a \.toml file, or one of sparse"
        with pytest.raises(LNTrustError, match=must):
            load_reproduction("spars")
        with pytest.raises(LNTrustError, match=r"not a readable TOML file: .*No such file"):
            load_reproduction("spars.toml")


plain = st.booleans() | st.integers(-1000, 1000) | st.floats(-10, 10) | st.text("ab0.5[]'\" ", max_size=5)
nested = st.recursive(plain, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@given(nested | st.lists(st.dictionaries(st.text("ab. ", min_size=1), plain, max_size=3), max_size=2))
def test_values_reach_a_study_as_they_stand(value: Any) -> None:
    got = value_of(_toml(value))
    assert got == value
    assert type(got) is type(value)
