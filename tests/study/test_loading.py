"""Studies: what ships, inheritance, overrides, and a meaning for every field."""

from pathlib import Path
from typing import Any

import pytest

from lntrust import LNTrustError, Study, load_study
from lntrust.study.loading import describe, list_studies


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("name", list_studies())
def test_every_shipped_study_loads_under_its_name_and_says_what_it_is(name: str) -> None:
    study = load_study(name)
    assert study.name == name
    assert study.about


def test_the_papers_values() -> None:
    sparse, hundred, dense = (load_study(n) for n in ("sparse-cifar10", "sparse-cifar100", "dense-cifar10"))
    assert (sparse.graph.nodes, sparse.graph.density, sparse.partition.skew) == (50, 0.1, 10.0)
    assert (hundred.data.dataset, hundred.partition.skew, hundred.graph) == ("cifar100", 5.0, sparse.graph)
    assert (dense.graph.kind, dense.graph.density) == ("gnm", 0.5)
    assert [learner.view for learner in dense.population.learners] == ["mobilenet_v2"]
    assert [one.kind for one in load_study("wearables").population.learners] == ["linear", "mlp", "cnn1d"]
    assert load_study("geo-eurosat").partition.by == "region"
    assert {"linear", "mlp", "forest"} <= {one.kind for one in load_study("digits").population.learners}


class TestInherits:
    def test_tables_merge_field_by_field_and_lists_are_replaced(self, tmp_path: Path) -> None:
        only = '[{ name = "only", kind = "linear", view = "pixels" }]'
        text = 'inherits = "digits"\ncompare = ["uniform"]\npartition.labelled = 400\n'
        path = write(tmp_path / "mine.toml", f"{text}population.learners = {only}\n")
        mine, digits = load_study(path), load_study("digits")
        assert mine.name == "mine"
        assert mine.about == digits.about
        assert mine.compare == ["uniform"]
        assert mine.partition == digits.partition.model_copy(update={"labelled": 400})
        assert mine.population.assign == digits.population.assign
        assert [learner.name for learner in mine.population.learners] == ["only"]
        assert mine.training == digits.training

    def test_a_relative_path_is_beside_the_file_wherever_the_command_is_given(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "studies" / "parent.toml", 'inherits = "digits"\ngraph.nodes = 7\n')
        child = write(tmp_path / "studies" / "child.toml", 'inherits = "parent.toml"\n')
        write(tmp_path / "parent.toml", 'inherits = "digits"\ngraph.nodes = 9\n')
        monkeypatch.chdir(tmp_path)
        assert load_study(child).graph.nodes == 7
        assert load_study("studies/child.toml").graph.nodes == 7

    def test_over_several_generations(self, tmp_path: Path) -> None:
        write(tmp_path / "a.toml", 'inherits = "digits"\n[graph]\nnodes = 7\n[training]\nlr = 0.5\n')
        write(tmp_path / "b.toml", 'inherits = "a.toml"\n[graph]\nattach = 3\n')
        study = load_study(write(tmp_path / "c.toml", 'inherits = "b.toml"\n[training]\nlr = 0.25\n'))
        assert (study.graph.nodes, study.graph.attach, study.training.lr) == (7, 3, 0.25)

    @pytest.mark.parametrize(
        ("parent", "says"),
        [
            ('"b.toml"', r"inherits in a circle: .*a\.toml → b\.toml"),
            ('"digit"', "study digit: did you mean digits"),
            ("3", "inherits = 3: must be the name or path of one study"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, parent: str, says: str) -> None:
        write(tmp_path / "b.toml", 'inherits = "a.toml"\n')
        with pytest.raises(LNTrustError, match=says):
            load_study(write(tmp_path / "a.toml", f"inherits = {parent}\n"))


@pytest.mark.parametrize("text", [b"nodes = = 3", b"\xff\xfe", b"[graph"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(text)
    with pytest.raises(LNTrustError, match=r"broken\.toml: not a readable TOML file"):
        load_study(path)


class TestOverrides:
    @pytest.mark.parametrize(
        ("override", "path", "value"),
        [
            ("graph.nodes=8", "graph.nodes", 8),
            ("training.lr=0.5", "training.lr", 0.5),
            ("training.l2=1e-3", "training.l2", 1e-3),
            ("graph.kind=ring", "graph.kind", "ring"),
            ('graph.kind="ring"', "graph.kind", "ring"),
            ("graph.connected=false", "graph.connected", False),
            ("graph.density=none", "graph.density", None),
            ("seeds=[3, 4]", "seeds", [3, 4]),
            ('compare=["uniform"]', "compare", ["uniform"]),
            ("partition.labelled=1_200", "partition.labelled", 1200),
            ("about=a = b", "about", "a = b"),
        ],
    )
    def test_values_of_all_types(self, override: str, path: str, value: Any) -> None:
        assert {p: v for p, v, _ in describe(load_study("digits", [override]))}[path] == value

    def test_entries_of_lists_and_a_table_that_is_not_there_yet(self, tmp_path: Path) -> None:
        entries = ["population.learners.0.kind=mlp", "population.learners.1.options.hidden=5", "seeds.1=9"]
        before, after = load_study("digits"), load_study("digits", [*entries, "methods.centralized.epochs=3"])
        old, new = before.population.learners, after.population.learners
        assert new[0] == old[0].model_copy(update={"kind": "mlp"})
        assert new[1].options == {**old[1].options, "hidden": 5}
        assert new[2:] == old[2:]
        assert (after.seeds, after.methods["centralized"]) == ([0, 9, 2], {"epochs": 3})

    def test_the_last_one_counts_and_none_stays(self) -> None:
        assert load_study("digits", ["graph.nodes=8", "graph.nodes=9"]).graph.nodes == 9
        assert load_study("digits").graph.nodes == 20

    @pytest.mark.parametrize(
        ("override", "says"),
        [
            *((text, "must look like path.to.field=value") for text in ("graph.nodes", "=5", "a.b 5", "")),
            *(
                (f"population.learners.{entry}.kind=mlp", f"no entry {entry}; entries are 0…3")
                for entry in ("9", "x", "-1")
            ),
            ("graph.nodes.few=3", "nodes is not a table of settings"),
        ],
    )
    def test_what_cannot_be_carried_out(self, override: str, says: str) -> None:
        with pytest.raises(LNTrustError) as refusal:
            load_study("digits", [override])
        assert str(refusal.value) == f"--set {override}: {says}"


class TestRefusals:
    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("graph.nodess=5", "unknown field graph.nodess; did you mean nodes?"),
            ("grph.nodes=5", "unknown field grph; did you mean graph?"),
            ("graph.zzz=5", "unknown field graph.zzz; known here: nodes, kind,"),
            ("population.learners.0.viw=x", "unknown field population.learners.0.viw; did you mean view?"),
            ("graph.nodes=many", "graph.nodes = 'many': input should be a valid integer"),
            ("graph.nodes=0", "graph.nodes = 0: input should be greater than or equal to 1"),
            ("graph.density=1.5", "graph.density = 1.5: input should be less than or equal to 1"),
            ("graph.kind=tree", "graph.kind = 'tree': input should be 'barabasi_albert', "),
            ("training.lr=inf", "training.lr = inf: input should be a finite number"),
            ("training.lr=nan", "training.lr = nan: input should be"),
            ("seeds=[-1]", "seeds.0 = -1: input should be greater than or equal to 0"),
            ("seeds=[]", "seeds = []: list should have at least 1 item"),
            ("partition.val_fraction=0.9", "their sum must be below 1"),
            ("partition.split=blocks", "split = blocks needs by = region, not by = label_skew"),
            ("partition.split=per_class_rounded", "code does not; write per_class_nearest, which does as it"),
            ("graph.kind=gnm", "graph: kind = gnm needs density: share p of all possible edges"),
            ("graph.kind=file", "graph: kind = file needs file: edge list (one `a b` per line, "),
            ("graph.kind=geographic", "graph.kind = geographic needs partition.by = region"),
            ("partition.classes_per_node=2", "partition: classes_per_node = 2: is no longer there; leave it"),
            ("population.learners.1.name=linear", "learners must have different names"),
            ("population.learners.1.noise=-1", "noise = -1: input should be greater than or equal to 0"),
            ("population.learners.1.noise=nan", "noise = nan: input should be"),
            (
                "population.learners.1.noise=1e9",
                "noise = 1000000000.0: input should be less than or equal to",
            ),
            ("population.learners.1.noise=loud", "noise = 'loud': input should be a valid number"),
            ("population.assign=by_degree", "every learner but the last needs a share"),
        ],
    )
    def test_the_message_names_field_value_and_what_would_do(self, override: str, message: str) -> None:
        with pytest.raises(LNTrustError) as refusal:
            load_study("digits", [override])
        assert message in str(refusal.value)
        assert str(refusal.value).startswith("study digits: ")

    def test_all_findings_are_told_at_once(self) -> None:
        with pytest.raises(LNTrustError) as refusal:
            load_study("digits", ["graph.nodes=0", "training.steps=0"])
        assert len(str(refusal.value).splitlines()) == 2

    def test_what_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(LNTrustError, match="population is missing"):
            load_study(write(tmp_path / "a.toml", "graph.nodes = 3\n"))
        with pytest.raises(LNTrustError, match="study sparse-cifar: did you mean sparse-cifar10"):
            load_study("sparse-cifar")


def test_a_study_cannot_be_changed() -> None:
    study: Study = load_study("digits")
    with pytest.raises(ValueError, match="frozen"):
        study.graph.nodes = 3
