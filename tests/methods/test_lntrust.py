"""LNTrust end to end: its reductions, its messages, its patience with bad neighbours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from lntrust import Study, load_study
from lntrust.experiment import Run
from lntrust.learners.estimators import Estimators
from lntrust.learners.views import Views
from lntrust.methods import Method, Site, State
from lntrust.methods.lntrust import LNTrust
from lntrust.network import Network, Questions, Replies
from lntrust.trust.evidence import Evidence
from lntrust.trust.neighbourhood import Neighbourhood
from lntrust.trust.weights import top_k
from lntrust.weighting import WEIGHTINGS, Weighting
from lntrust.weighting.base import Memory

SMALL = [
    "graph.nodes=6", "partition.labelled=300", "training.stage1_rounds=2", "training.stage2_rounds=4",
    "training.refresh=2", "evaluation.every=2", "methods.lntrust.warmup=1", "methods.lntrust.budget=40",
    "methods.lntrust.sample=50",
]  # fmt: skip
LINEAR = '{name="linear",kind="linear",view="pixels",options={dropout=0.2}}'
MLP = '{name="mlp",kind="mlp",view="pixels",options={hidden=8,dropout=0.2}}'
FOREST = '{name="forest",kind="forest",view="pixels",options={trees=3}}'
MIXED = f"population.learners=[{LINEAR},{MLP},{FOREST}]"
TORCH = f"population.learners=[{LINEAR},{MLP}]"
FLOAT64 = "training.precision=float64"


def study(*overrides: str) -> Study:
    return load_study("digits", [*SMALL, *overrides])


def made(views: Views, *overrides: str, method: str = "lntrust", **options: Any) -> Run:
    """A run that has ended."""
    one = Run(study(*overrides), method, 0, views, **options)
    one()
    return one


_SHARED: dict[tuple[str, ...], Run] = {}


def shared(views: Views, *overrides: str, method: str = "lntrust") -> Run:
    """The same, made once for all tests that only look at it."""
    key = (*overrides, method, str(views.dtype))
    if key not in _SHARED:
        _SHARED[key] = made(views, *overrides, method=method)
    return _SHARED[key]


def told(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name != "seconds"}


def parameters(run: Run) -> dict[str, Tensor]:
    state = run.population.state()
    return {name: t for name, t in state.items() if not name.startswith("steps/")}


class TrainOnly(Method):
    """Stage 2 without neighbours, on train only: what LNTrust is when nobody can teach."""

    uses_validation = True


TRAIN_ONLY = f"{__name__}:TrainOnly"


class TestRuns:
    @pytest.mark.parametrize("targets", ["hard", "soft"])
    def test_mixed_kinds(self, views: Views, targets: str) -> None:
        one = Run(study(MIXED, f"methods.lntrust.targets={targets}"), "lntrust", 0, views)
        summary = one()
        report = summary["method_report"]
        assert report["weighting"] == "trust"
        assert report["faulty_replies"] == 0
        assert 0 < report["mean_self_trust"] < 1
        assert 0 < report["mean_lambda"] <= 0.5
        assert set(report["importance"]) == set(report["importance_std"])
        assert len(report["importance"]) == 6
        torch.testing.assert_close(one.state["closed"].sum(-1), torch.ones(6))
        assert (one.state["closed"] > 0).sum() == 6 + len(one.network.edges)
        assert (one.state["open"][:, 0] == 0).all()

    @pytest.mark.parametrize("name", WEIGHTINGS)
    def test_every_weighting(self, views: Views, name: str) -> None:
        one = Run(study(MIXED, f"methods.lntrust.weighting={name}"), "lntrust", 0, views)
        summary = one()
        assert summary["method_report"]["weighting"] == name
        torch.testing.assert_close(one.state["closed"].sum(-1), torch.ones(6))
        assert all(t.isfinite().all() for t in one.state.values())
        assert one.network.ledger.payload(phase="distil").sum() > 0

    @pytest.mark.parametrize("gate", ["members", "ensemble", "loss", "off"])
    def test_every_deployment_gate(self, views: Views, gate: str) -> None:
        one = made(views, TORCH, f"methods.lntrust.deployment_gate={gate}")
        together = one.state["answers together"]
        members = one.method.deploy(one.site, one.state).members
        for i in range(6):
            asked = members[members[:, 0] == i, 1].tolist()
            assert i in asked
            assert (len(asked) > 1) == bool(together[i])
        if gate == "off":
            assert together.all()

    @pytest.mark.parametrize("setting", ["importance=paper", "importance=off", "kl_scale=per_class",
                                         "training_gate=false", "strength=0"])  # fmt: skip
    def test_settings_matter(self, views: Views, setting: str) -> None:
        plain, other = (
            shared(views, TORCH, "methods.lntrust.targets=soft", *more)
            for more in ([], [f"methods.lntrust.{setting}"])
        )
        if setting == "training_gate=false":
            assert (other.state["lambda"] == 0.5).all()
            if (plain.state["lambda"] == 0.5).all():
                return
        assert any(not torch.equal(t, parameters(other)[name]) for name, t in parameters(plain).items())

    def test_distillation_changes_the_learners(self, views: Views) -> None:
        with_, without = shared(views, TORCH), made(views, TORCH, "methods.lntrust.budget=0")
        assert any(not torch.equal(t, parameters(without)[name]) for name, t in parameters(with_).items())

    def test_the_same_seed_gives_the_same_bits(self, views: Views) -> None:
        first, second = (told(Run(study(MIXED), "lntrust", 3, views)()) for _ in range(2))
        assert first == second


class TestBackends:
    @pytest.mark.parametrize(
        ("targets", "weighting"), [("hard", "trust"), ("soft", "trust"), ("hard", "weighted_majority")]
    )
    def test_equal_in_float64(self, views64: Views, targets: str, weighting: str) -> None:
        settings = (f"methods.lntrust.targets={targets}", f"methods.lntrust.weighting={weighting}")
        batched, loop = (
            made(views64, TORCH, FLOAT64, *settings, backend=backend) for backend in ("batched", "loop")
        )
        assert set(batched.state) == set(loop.state)
        for name, tensor in batched.state.items():
            # The last bias shifts all scores alike: α has no gradient there, so it only collects rounding.
            if name != "memory/bias 2":
                torch.testing.assert_close(tensor, loop.state[name], rtol=0, atol=1e-8, msg=name)
        for name, tensor in batched.population.state().items():
            torch.testing.assert_close(tensor, loop.population.state()[name], rtol=0, atol=1e-8, msg=name)
        assert batched.network.ledger.summary() == loop.network.ledger.summary()


class SelfTrust(Weighting):
    """All trust in oneself; neighbours alike among each other."""

    def weights(self, memory: Memory, evidence: Evidence, options: Tensor) -> Tensor:
        alpha = torch.zeros_like(evidence.phi[..., 0])
        alpha[:, 0] = 1.0
        return alpha * options


class TestReductions:
    def test_without_budget_it_trains_on_train_only(self, views: Views) -> None:
        one = made(views, MIXED, "methods.lntrust.budget=0")
        plain = shared(views, MIXED, method=TRAIN_ONLY)
        assert one.network.ledger.payload(phase="distil").sum() == 0
        assert one.network.ledger.payload(phase="probe").sum() > 0
        for name, tensor in parameters(plain).items():
            assert torch.equal(tensor, parameters(one)[name]), name

    def test_without_budget_self_is_plain_training_and_test_is_not(self, views: Views) -> None:
        one = Run(study(MIXED, "methods.lntrust.budget=0"), "lntrust", 0, views)()
        plain = Run(study(MIXED), TRAIN_ONLY, 0, views)()
        assert one["per_node"]["self"] == plain["per_node"]["self"]
        assert one["per_node"]["test"] != one["per_node"]["self"]
        # Independent has the validation labels to train on, too.
        independent = Run(study(MIXED), "independent", 0, views)()
        assert independent["per_node"]["self"] != plain["per_node"]["self"]

    def test_one_node_alone(self, views: Views) -> None:
        small = ("graph.nodes=1", "partition.labelled=60", MIXED)
        one, plain = Run(study(*small), "lntrust", 0, views), Run(study(*small), TRAIN_ONLY, 0, views)
        alone, trained = one(), plain()
        assert alone["test"] == alone["self"] == trained["test"] == trained["self"]
        assert alone["per_node"]["test_pooled"] == trained["per_node"]["test_pooled"]
        assert alone["bytes"]["total"] == 0
        assert one.state["closed"].tolist() == [[1.0]]
        assert one.state["lambda"].tolist() == [0.0]  # nobody to learn from
        for name, tensor in parameters(plain).items():
            assert torch.equal(tensor, parameters(one)[name])
        assert alone["method_report"]["importance"]["KL"] == 0

    def test_trust_in_oneself(self, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(WEIGHTINGS, "uniform", SelfTrust)
        fixed = Run(study(MIXED, "methods.lntrust.weighting=uniform"), "lntrust", 0, views)()
        assert fixed["per_node"]["test"] == fixed["per_node"]["self"]
        assert fixed["per_node"]["test_pooled"] == fixed["per_node"]["self_pooled"]
        assert fixed["bytes"]["per_deployed_query"] == 0


class TestMessages:
    def test_questions_and_soft_predictions_only(self, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[tuple[Questions, str, Replies]] = []
        ask = Network.ask

        def recorded(self: Network, questions: Questions, phase: str, edges: Any = None) -> Replies:
            asked.append((questions, phase, ask(self, questions, phase, edges)))
            return asked[-1][2]

        def refused(*_: Any, **__: Any) -> None:
            raise AssertionError("LNTrust sends nothing but questions and predictions")

        monkeypatch.setattr(Network, "ask", recorded)
        monkeypatch.setattr(Network, "send", refused)
        one = made(views, MIXED)
        assert {phase for _, phase, _ in asked} == {"probe", "distil"}
        assert {kind for _, kind, _ in one.network.ledger} == {"query", "reply"}
        p = one.world.partition
        own = {"validation": p.validation, "shard": p.shard}
        for questions, phase, replies in asked:
            assert questions.source in (("validation", "shard") if phase == "probe" else ("shard",))
            assert not questions.ids.is_floating_point()
            for i in range(one.world.n):  # a node asks about examples of its own
                ids = questions.ids[questions.offsets[i] : questions.offsets[i + 1]]
                assert np.isin(ids.numpy(), own[questions.source][i]).all()
            assert replies.probabilities.shape[1] == 10
            torch.testing.assert_close(replies.probabilities.sum(-1), torch.ones(len(replies.probabilities)))

    def test_bytes(self, views: Views) -> None:
        one = shared(views, TORCH)
        w, ledger = one.world, one.network.ledger
        question, answer = int(np.prod(w.input_shape)) * np.dtype(w.input_dtype).itemsize, 4 * 10
        distilling, refreshes, B, sample = 3, 4, 40, 50  # rounds 2–4; after Stage 1, rounds 2, 4, and the end
        asker, answerer = w.edges[:, 0], w.edges[:, 1]
        probed = refreshes * (w.partition.validation.lengths + sample)
        assert (ledger.payload("query", "distil") == distilling * B * question).all()
        assert (ledger.payload("reply", "distil") == distilling * B * answer).all()
        assert (ledger.payload("query", "probe") == probed[asker] * question).all()
        assert (ledger.payload("reply", "probe") == probed[answerer] * answer).all()

    def test_a_shard_smaller_than_sample_and_budget(self, views: Views) -> None:
        settings = ("partition.shard=30", "methods.lntrust.sample=500", "methods.lntrust.budget=1000")
        one = made(views, TORCH, *settings)
        per_edge = one.network.ledger.payload("reply", "distil")
        assert (per_edge == 3 * 30 * 40).all()
        probed = 4 * (one.world.partition.validation.lengths + 30) * 40
        assert (one.network.ledger.payload("reply", "probe") == probed[one.world.edges[:, 1]]).all()

    @pytest.mark.parametrize("k", [1, 2])
    def test_top_k_asks_k_neighbours(self, views: Views, monkeypatch: pytest.MonkeyPatch, k: int) -> None:
        asked: list[Tensor] = []
        trust: list[Tensor] = []
        ask, distil = Network.ask, LNTrust._distil

        def recorded(self: Network, questions: Questions, phase: str, edges: Any = None) -> Replies:
            if phase == "distil":
                asked.append(edges)
            return ask(self, questions, phase, edges)

        def watched(self: LNTrust, site: Site, state: State, t: int) -> State:
            trust.append(state["open"])
            return distil(self, site, state, t)

        monkeypatch.setattr(Network, "ask", recorded)
        monkeypatch.setattr(LNTrust, "_distil", watched)
        one = made(views, TORCH, f"methods.lntrust.top_k={k}")
        assert len(asked) == len(trust) == 3
        around = Neighbourhood.of(one.network.edges, 6)
        for edges, alpha in zip(asked, trust, strict=True):
            best = [around.edge[i, top_k(alpha, k)[i]].tolist() for i in range(6)]
            assert all(len(row) <= k for row in best)
            assert edges.tolist() == [e for row in best for e in row]
            assert len(edges) < len(one.network.edges)

    def test_without_a_pool(self, views: Views) -> None:
        one = made(views, MIXED, "methods.lntrust.unlabelled=false")
        assert one.network.ledger.payload(phase="distil").sum() == 0
        probed = 4 * one.world.partition.validation.lengths[one.world.edges[:, 1]] * 40
        assert (one.network.ledger.payload("reply", "probe") == probed).all()
        phi = one.state["evidence/phi"]
        assert (phi[..., [0, 3, 4]] == 0).all()
        assert (phi[..., 5] > 0).any()
        assert "pseudo/ids" not in one.state

    def test_no_shard_at_all(self, views: Views) -> None:
        one = made(views, MIXED, "partition.shard=0")
        assert one.network.ledger.payload(phase="distil").sum() == 0


def wrong_shape(p: Tensor) -> Tensor:
    return p[:, :-1]


FAULTS: dict[str, Callable[[Tensor], Tensor | None]] = {
    "NaN": lambda p: p * torch.nan,
    "negative": lambda p: p - 1.0,
    "sum": lambda p: p * 2,
    "shape": wrong_shape,
    "none": lambda _: None,
    "one bad row": lambda p: torch.cat([p[:-1], p[-1:] * 3]),
}


class TestFaults:
    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_faulty_neighbour_is_dropped_and_counted(self, views: Views, fault: str) -> None:
        one = Run(study(MIXED), "lntrust", 0, views)
        one.network.misbehaviour[2] = FAULTS[fault]
        summary = one()
        edges = one.world.edges
        asked_it = edges[:, 1] == 2
        # Per edge: two questions at each of four refreshes, and one in each of three distilling rounds.
        assert (one.network.faulty[asked_it] == 2 * 4 + 3).all()
        assert (one.network.faulty[~asked_it] == 0).all()
        assert summary["method_report"]["faulty_replies"] == 11 * asked_it.sum()
        members = one.method.deploy(one.site, one.state).members
        assert not ((members[:, 1] == 2) & (members[:, 0] != 2)).any()
        closed = one.state["closed"]
        torch.testing.assert_close(closed.sum(-1), torch.ones(6))
        assert all(t.isfinite().all() for t in one.state.values())
        assert all(t.isfinite().all() for t in parameters(one).values())
        everybody = torch.arange(6)
        assert one.population.predict(everybody, everybody).isfinite().all()

    def test_it_does_not_matter_how_it_fails(self, views: Views) -> None:
        ends = []
        for fault in ("NaN", "shape"):
            one = Run(study(MIXED), "lntrust", 0, views)
            one.network.misbehaviour[2] = FAULTS[fault]
            ends.append(told(one()))
        assert ends[0] == ends[1]

    def test_the_faulty_node_itself_is_not_harmed(self, views: Views) -> None:
        one = Run(study(TORCH), "lntrust", 0, views)
        one.network.misbehaviour[2] = FAULTS["none"]
        one()
        assert one.state["closed"][2, 0] > 0
        assert (one.state["closed"][2] > 0).sum() == 1 + one.world.degrees[2]

    @pytest.mark.parametrize("weighting", ["trust", "weighted_majority", "fedfomo"])
    @pytest.mark.parametrize("pruned", ["methods.lntrust.top_k=1", ""])
    def test_everybody_is_faulty(self, views: Views, weighting: str, pruned: str) -> None:
        soft = ("methods.lntrust.targets=soft", f"methods.lntrust.weighting={weighting}")
        one = Run(study(TORCH, *soft, *filter(None, [pruned])), "lntrust", 0, views)
        one.network.misbehaviour.update(dict.fromkeys(range(6), FAULTS["none"]))
        summary = one()
        plain = shared(views, TORCH, method=TRAIN_ONLY)
        if weighting != "weighted_majority":  # which also weighs the classes of a single answer
            assert summary["per_node"]["test"] == summary["per_node"]["self"]
        assert all(t.isfinite().all() for t in one.state.values())
        for name, tensor in parameters(plain).items():
            assert torch.equal(tensor, parameters(one)[name]), name

    def test_a_neighbour_that_comes_back(self, views: Views) -> None:
        """Silent at first; heard again at later refreshes."""
        one = Run(study(MIXED), "lntrust", 0, views)
        one.network.misbehaviour[2] = lambda p: None if one.done < 4 else p
        one()
        around = one.method.tables(one.site, one.state)["trust"]
        it = (around["member"] == 2) & (around["node"] != 2)
        by_round = {r: around["trust"][it & (around["round"] == r)] for r in (0, 2, 4, 5)}
        assert (by_round[0] == 0).all()
        assert (by_round[2] > 0).all()  # round 2 of Stage 2 is the run's fourth
        assert (by_round[5] > 0).all()


class TestOddNodes:
    def test_without_neighbours(self, views: Views, tmp_path: Path) -> None:
        path = tmp_path / "edges.txt"
        path.write_text("0 1\n1 2\n2 3\n3 4\n")  # node 5 knows nobody
        graph = ("graph.kind=file", f'graph.file="{path}"', "graph.connected=false")
        for weighting in ("trust", "weighted_majority", "linucb"):
            setting = f"methods.lntrust.weighting={weighting}"
            one = Run(study(*graph, MIXED, setting, "methods.lntrust.targets=soft"), "lntrust", 0, views)
            summary = one()
            assert one.state["closed"][5].tolist() == [1.0, 0.0, 0.0]
            assert one.state["open"][5].tolist() == [0.0, 0.0, 0.0]
            assert one.state["lambda"][5] == 0
            if weighting != "weighted_majority":  # which also weighs the classes of a single answer
                assert summary["per_node"]["test"][5] == summary["per_node"]["self"][5]
            assert all(t.isfinite().all() for t in parameters(one).values())

    def test_one_class_each(self, views: Views) -> None:
        one = Run(study(MIXED, "partition.classes_per_node=1"), "lntrust", 0, views)
        summary = one()
        assert (one.world.class_distribution.max(1) == 1).all()
        assert 0 <= summary["test"] <= 1
        assert all(t.isfinite().all() for t in one.state.values())

    def test_a_handful_of_labels(self, views: Views) -> None:
        few = ("partition.minimum=6", "partition.labelled=36")
        one = Run(study(MIXED, *few), "lntrust", 0, views)
        one()
        validation = one.world.partition.validation
        assert validation.lengths.max() < 10  # so every node misses classes
        labels = one.world.labels[validation.values]
        rho = one.state["evidence/rho"]
        for i in range(6):
            absent = np.setdiff1d(np.arange(10), labels[validation.owner == i])
            assert (rho[i][:, absent] == 0).all()
        assert all(t.isfinite().all() for t in one.state.values())

    @pytest.mark.parametrize(("stage1", "stage2"), [(0, 2), (2, 0), (1, 1), (0, 0)])
    def test_hardly_any_rounds(self, views: Views, stage1: int, stage2: int) -> None:
        rounds = (f"training.stage1_rounds={stage1}", f"training.stage2_rounds={stage2}")
        assert 0 <= Run(study(MIXED, *rounds), "lntrust", 0, views)()["test"] <= 1

    def test_validation_drawn_afresh(self, views: Views) -> None:
        one = made(views, MIXED, "partition.validation=fresh")
        torch.testing.assert_close(one.state["closed"].sum(-1), torch.ones(6))


class TestForests:
    def fitted(self, run: Run) -> list[np.ndarray]:
        (forests,) = (s for s in run.population.stacks if isinstance(s, Estimators))
        return [fit[0] for fit in forests._fitted_on if fit is not None]

    def test_they_learn_from_pseudo_labels(self, views: Views) -> None:
        one = shared(views, MIXED)
        plain = self.fitted(shared(views, MIXED, method=TRAIN_ONLY))
        grown = self.fitted(one)
        assert len(grown) == len(plain) == 2
        for node, before, after in zip((2, 5), plain, grown, strict=True):
            assert len(after) > len(before)
            assert np.array_equal(after[: len(before)], before)
            assert np.isin(after[len(before) :], one.world.partition.shard[node]).all()

    def test_all_pseudo_labels_weigh_lambda_times_all_labels(self, views: Views) -> None:
        one = made(views, MIXED, "methods.lntrust.strength=0.25", "methods.lntrust.training_gate=false")
        assert isinstance(one.method, LNTrust)
        pseudo = one.method.pseudo_labels(one.site, one.state)
        assert pseudo is not None
        weight = pseudo.weight.numpy()
        for i in range(6):
            mine = weight[pseudo.examples.owner == i]
            assert mine.sum() == pytest.approx(0.25 * one.labelled.lists.lengths[i], rel=1e-5)


class Stopped(BaseException):
    pass


class TestRecords:
    def test_a_resumed_run_equals_an_uninterrupted_one(self, views: Views, tmp_path: Path) -> None:
        often = (MIXED, "evaluation.checkpoint_every=1")
        whole = Run(study(*often), "lntrust", 0, views, folder=tmp_path / "whole")
        summary = whole()
        for stop in range(1, 7):

            def progress(done: int, *_: object, stop: int = stop) -> None:
                if done == stop:
                    raise Stopped

            with pytest.raises(Stopped):
                Run(study(*often), "lntrust", 0, views, folder=tmp_path / "stopped")(
                    resume=True, progress=progress
                )
        resumed = Run(study(*often), "lntrust", 0, views, folder=tmp_path / "stopped")
        assert told(resumed(resume=True)) == told(summary)
        assert set(resumed.state) == set(whole.state)
        for name, tensor in whole.state.items():
            assert torch.equal(tensor, resumed.state[name]), name
        for name, tensor in whole.population.state().items():
            assert torch.equal(tensor, resumed.population.state()[name]), name
        for name in ("trust", "features"):
            (one,), (other,) = (tmp_path.glob(f"{w}/**/{name}.parquet") for w in ("whole", "stopped"))
            assert pq.read_table(one) == pq.read_table(other)

    def test_trust_over_time_is_kept(self, views: Views, tmp_path: Path) -> None:
        one = made(views, MIXED, folder=tmp_path)
        (path,) = tmp_path.rglob("trust.parquet")
        rows = pq.read_table(path).to_pylist()
        closed = 6 + len(one.world.edges)
        assert len(rows) == 4 * closed
        total: dict[tuple[int, int], float] = {}
        for row in rows:
            key = (row["round"], row["node"])
            total[key] = total.get(key, 0.0) + row["trust"]
            assert 0 <= row["lambda"] <= 0.5
        assert {r for r, _ in total} == {0, 2, 4, 5}
        assert len(total) == 4 * 6
        assert list(total.values()) == pytest.approx([1.0] * len(total))
        known = {(i, i) for i in range(6)} | {tuple(edge) for edge in one.world.edges.tolist()}
        assert {(row["node"], row["member"]) for row in rows} == known
        (path,) = tmp_path.rglob("features.parquet")
        features = pq.read_table(path)
        assert features.num_rows == closed
        assert features.column_names == [
            "node", "member", "overlap", "probe_accuracy", "weighted_probe_accuracy", "KL", "entropy",
            "degree",
        ]  # fmt: skip
        degree = one.world.degrees[features["member"].to_numpy()] / 6
        assert features["degree"].to_numpy() == pytest.approx(degree)
