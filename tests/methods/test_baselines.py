"""What is asked of every baseline alike."""

from pathlib import Path

import pytest
import small_runs as small
import torch

from lntrust.learners.views import Views
from lntrust.methods import list_methods

SILENT = ["independent", "uniform", "mean_teacher", "centralized", "knn_per"]  # while they train
LEARN_TOGETHER = [*small.SHARING, "dml", "dml_public", "fedmd", "feddf", "desa", "idkd"]
ASK = ["dml", "dml_public", "fedmd", "feddf"]
ENSEMBLES = ["uniform", "fedpae", "stacking", "fens"]
FITTED = ["fedpae", "stacking", "fens", "knn_per"]  # once, after training


@pytest.mark.parametrize("method", small.BASELINES)
def test_both_backends_are_equal_in_float64(views64: Views, method: str) -> None:
    learners = small.MIXED if method in FITTED else small.TORCH
    how = (learners, *small.QUICK, *small.UNEQUAL, "training.schedule=random_node", *small.SHORT)
    batched, loop = (small.made(views64, *how, method=method, backend=b) for b in ("batched", "loop"))
    mine, theirs = small.tensors_of(batched), small.tensors_of(loop)
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-8, msg=name)
    assert batched.network.ledger.summary() == loop.network.ledger.summary()
    assert (batched.network.ledger.payload().sum() == 0) == (method in SILENT)


@pytest.mark.parametrize(
    "method",
    ["centralized", "d_psgd", "desa", "ditto", "gossip_fedavg", "idkd", "mean_teacher", *FITTED],
)
def test_a_resumed_run_equals_an_uninterrupted_one(views: Views, tmp_path: Path, method: str) -> None:
    """Those that carry something from round to round; drawn unevenly, it differs from node to node."""
    uneven = (small.MIXED, *small.QUICK, "graph.kind=complete", "training.schedule=random_node", *small.SHORT)
    assert small.assert_resumes(views, tmp_path, *uneven, method=method).state


class TestStart:
    @pytest.mark.parametrize("method", small.BASELINES)
    def test_nodes_of_an_architecture_begin_alike_where_parameters_are_averaged(
        self, views: Views, method: str
    ) -> None:
        """The first of them as Independent's first; elsewhere everybody as under Independent, apart."""
        own, plain = (
            small.begun(views, small.TORCH, method=m).population.torch_stacks for m in (method, "independent")
        )
        for stack, other in zip(own, plain, strict=True):
            theta, apart = stack.flat(), other.flat()
            assert len(apart.unique(dim=0)) == len(apart) == 3
            common = method in ("d_psgd", "dfedavg", "gossip_fedavg", "fedfomo", "ditto")
            assert list_methods()[method].common_start == common
            assert torch.equal(theta, apart[:1].expand_as(apart) if common else apart)

    @pytest.mark.parametrize("method", LEARN_TOGETHER)
    def test_stage_1_is_everybodys_alone(self, views: Views, method: str) -> None:
        one = small.begun(views, small.TORCH, *small.QUICK, "training.stage2_rounds=1", method=method)
        alone = small.without_neighbours(method)
        plain = small.begun(views, small.TORCH, "training.stage2_rounds=0", method=alone)
        plain.population.load(one.population.state())
        plain()
        after: dict[int, tuple[int, bool]] = {}

        def progress(done: int, *_: object) -> None:
            alike = all(
                torch.equal(t, small.parameters(one)[name]) for name, t in small.parameters(plain).items()
            )
            after[done] = int(one.network.ledger.payload().sum()), alike

        one(progress=progress)
        # DeSA exchanges its anchors between the stages.
        assert [after[0][0], after[1][0]] == [0, 0]
        assert after[2][0] == 0 or method == "desa"
        assert after[3][0] > after[2][0]
        assert after[2][1]
        assert not after[3][1]


class TestReductions:
    @pytest.mark.parametrize(
        ("method", "atol"),
        [
            ("d_psgd", 0), ("dfedavg", 0), ("gossip_fedavg", 0), ("fedmd", 0), ("feddf", 0), ("uniform", 0),
            ("dml", 1e-9), ("dml_public", 1e-9), ("decdiff_vt", 1e-12), ("fedfomo", 0), ("ditto", 0),
        ],
    )  # fmt: skip
    def test_one_node_is_independent(self, views64: Views, method: str, atol: float) -> None:
        """Exactly, or to the last digits where the same loss comes of another formula."""
        how = (*small.ALONE, small.ONLY_LINEAR, "methods.decdiff_vt.beta=1")
        (one, summary), (plain, reference) = (
            small.ended(views64, *how, method=m) for m in (method, small.without_neighbours(method))
        )
        assert summary["per_node"] == reference["per_node"]
        assert summary["bytes"] == reference["bytes"]
        small.assert_same(one, plain, atol)

    @pytest.mark.parametrize(
        ("method", "nothing"),
        [
            ("dml", ("methods.dml.strength=0",)),
            ("dml_public", ("methods.dml_public.strength=0",)),
            ("dml_public", ("partition.shard=0",)),
            ("fedmd", ("methods.fedmd.strength=0", "methods.fedmd.transfer=0")),
            ("fedmd", ("methods.fedmd.budget=0",)),
            ("feddf", ("methods.feddf.strength=0",)),
            ("feddf", ("partition.pool=0", "partition.shard=0")),
            ("fedmd", ("partition.pool=0", "partition.shard=0")),
            ("idkd", ("methods.idkd.strength=0",)),
            ("idkd", ("methods.idkd.budget=0",)),
            ("idkd", ("methods.idkd.threshold=0.999999",)),
            ("idkd", ("partition.pool=0", "partition.shard=0")),
            ("mean_teacher", ("methods.mean_teacher.weight=0", "methods.mean_teacher.decay=0")),
        ],
    )
    def test_switched_off_it_is_independent(
        self, views64: Views, method: str, nothing: tuple[str, ...]
    ) -> None:
        """Nor do rows beside the labelled ones, or a teacher's noise, move the dropout of labelled rows."""
        one, plain = (small.shared(views64, small.TORCH, *nothing, method=m) for m in (method, "independent"))
        small.assert_same(one, plain, 1e-9)

    @pytest.mark.parametrize("method", [*LEARN_TOGETHER, "mean_teacher"])
    def test_as_it_is_it_is_not(self, views64: Views, method: str) -> None:
        """Nor is it DML."""
        how = (small.TORCH, *small.QUICK)
        for other in {small.without_neighbours(method), "dml"} - {method}:
            small.assert_differ(*(small.shared(views64, *how, method=m) for m in (method, other)))

    @pytest.mark.parametrize("method", ASK)
    def test_without_a_sound_answer_it_is_independent(self, views64: Views, method: str) -> None:
        one = small.begun(views64, small.TORCH, *small.QUICK, method=method)
        one.network.misbehaviour.update(dict.fromkeys(range(6), lambda p: p * torch.nan))
        one()
        asked = small.ROUNDS * (1 if method in ("fedmd", "feddf") else small.STEPS)
        asked += one.method.settings.transfer if method == "fedmd" else 0
        assert one.network.faulty.sum() == asked * len(one.world.edges)
        small.assert_same(one, small.shared(views64, small.TORCH, method="independent"), 1e-9)


@pytest.mark.parametrize("method", [name for name in small.BASELINES if name not in (*ENSEMBLES, "knn_per")])
def test_everybody_answers_alone_and_forests_are_those_of_independent(views: Views, method: str) -> None:
    """Which costs nothing."""
    how = (small.MIXED, *small.QUICK, "graph.kind=complete")
    one, summary = small.shared_end(views, *how, method=method)
    assert summary["bytes"]["per_deployed_query"] == 0
    assert (summary["bytes"]["total"] == 0) == (method in SILENT)
    if method == "centralized":  # which answers in the nodes' place
        return
    assert summary["per_node"]["test"] == summary["per_node"]["self"]
    plain = small.shared(views, *how, method=small.without_neighbours(method))
    forest = ~one.population.takes_steps
    assert forest.any()
    mine, theirs = (run.population.predict_all(small.all_tested(run)) for run in (one, plain))
    assert torch.equal(mine[forest], theirs[forest])
    assert torch.equal(mine, theirs) == (method == "independent")


class TestRemarks:
    def said(self, views: Views, method: str, *overrides: str) -> list[str]:
        """What a run says before it begins, without the method's name."""
        said: list[str] = []
        small.begun(views, *overrides, method=method, notice=said.append)
        return [each.removeprefix(f"{method}: ") for each in said]

    @pytest.mark.parametrize("method", [*LEARN_TOGETHER, "mean_teacher"])
    def test_forests(self, views: Views, method: str) -> None:
        """They have nothing to share, and are not counted among those who lack a neighbour."""
        said = self.said(views, method, small.FORESTS, "graph.kind=complete")
        assert said[-1] == "learners without gradient steps train alone and answer when asked: forest"
        inside = "parameters are shared inside one architecture only: linear (3 nodes, 3 edges)"
        assert said[:-1] == ([inside] if method in small.SHARING else [])

    @pytest.mark.parametrize("method", small.SHARING)
    def test_two_architectures(self, views: Views, method: str) -> None:
        """On a ring, in turn, no neighbour is like another."""
        inside = "parameters are shared inside one architecture only: linear (3 nodes, {0} edges), "
        inside += "mlp (3 nodes, {0} edges)"
        assert self.said(views, method, small.TORCH, "graph.kind=complete") == [inside.format(3)]
        lonely = "6 of 6 nodes have no neighbour of their kind and train alone"
        assert self.said(views, method, small.TORCH, "graph.kind=ring") == [inside.format(0), lonely]

    @pytest.mark.parametrize(
        ("method", "overrides", "remarks"),
        [
            ("dml_public", ("partition.shard=0",), ["no unlabelled examples: nodes train alone"]),
            *(
                (m, ("partition.pool=0", "partition.shard=0"), ["no public examples: nodes train alone"])
                for m in ("fedmd", "feddf", "idkd")
            ),
            ("decdiff_vt", small.ALONE, ["1 of 1 nodes have no neighbour of their kind and train alone"]),
            *((method, (), []) for method in small.BASELINES),
        ],
    )
    def test_nothing_to_learn_from_and_nothing_to_say(
        self, views: Views, method: str, overrides: tuple[str, ...], remarks: list[str]
    ) -> None:
        assert self.said(views, method, small.ONLY_LINEAR, *overrides) == remarks
