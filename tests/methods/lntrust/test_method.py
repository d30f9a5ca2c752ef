"""LNTrust end to end: its reductions, its messages, its records."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import small_runs as small
import torch

from lntrust.experiment import Run
from lntrust.learners.estimators import Estimators
from lntrust.learners.views import Views
from lntrust.methods.lntrust.method import LNTrust
from lntrust.network import Network, Questions, Replies
from lntrust.trust.rivals import WEIGHTINGS


class TestRuns:
    @pytest.mark.parametrize("name", WEIGHTINGS)
    def test_every_weighting(self, views: Views, name: str) -> None:
        one, summary = small.ended(
            views, small.MIXED, *small.SHORT, f"methods.lntrust.weighting={name}", method="lntrust"
        )
        report, state = summary["method_report"], one.state
        assert (report["weighting"], report["faulty_replies"]) == (name, 0)
        assert 0 < report["mean_self_trust"] < 1
        assert 0 < report["mean_lambda"] <= 0.5
        torch.testing.assert_close(state.closed.sum(-1), torch.ones(6))
        assert state.evidence.mask.sum() == 6 + len(one.network.edges)
        assert not (state.closed[~state.evidence.mask] > 0).any()
        assert (state.open[:, 0] == 0).all()
        assert all(t.isfinite().all() for t in one.method.pack(state).values())
        assert one.network.ledger.payload(phase="distil").sum() > 0

    def test_a_head_start_opens_the_gate_on_evidence(self, views: Views) -> None:
        """Six nodes with a handful of labels cannot prove anything; nor need they, if enough is granted."""
        strict = (*small.SHORT, *small.levers(deployment_gate="evidence", evidence=0.999999))
        closed, opened = (
            small.made(views, small.TORCH, *strict),
            small.made(views, small.TORCH, *strict, *small.levers(prior_wins=100)),
        )
        assert not closed.state.together.any()
        assert opened.state.together.all()
        assert torch.equal(closed.state.closed, opened.state.closed)

    @pytest.mark.parametrize("gate", ["members", "ensemble", "loss", "off"])
    def test_every_deployment_gate(self, views: Views, gate: str) -> None:
        one = small.made(views, small.TORCH, *small.SHORT, *small.levers(deployment_gate=gate))
        together = one.state.together
        members = one.method.deploy(one.site, one.state).members
        for i in range(6):
            asked = members[members[:, 0] == i, 1].tolist()
            assert i in asked
            assert (len(asked) > 1) == bool(together[i])
        assert gate != "off" or together.all()

    @pytest.mark.parametrize("setting", ["importance=paper", "importance=off", "kl_scale=per_class",
                                         "training_gate=false", "strength=0"])  # fmt: skip
    def test_settings_matter(self, views: Views, setting: str) -> None:
        plain, other = (
            small.shared(views, small.TORCH, *small.SHORT, "methods.lntrust.targets=soft", *more)
            for more in ([], [f"methods.lntrust.{setting}"])
        )
        if setting == "training_gate=false":
            assert (other.state.strength == 0.5).all()
            if (plain.state.strength == 0.5).all():
                return
        assert any(
            not torch.equal(t, small.parameters(other)[name]) for name, t in small.parameters(plain).items()
        )


@pytest.mark.parametrize(
    "settings",
    [
        (), small.levers(targets="soft", weighting="weighted_majority"), small.ALL_LEVERS,
        ["reading=paper", "methods.lntrust.targets=soft"],
    ],
)  # fmt: skip
def test_backends_equal_in_float64(views64: Views, settings: list[str]) -> None:
    batched, loop = (
        small.made(views64, small.TORCH, *settings, backend=backend) for backend in ("batched", "loop")
    )
    small.assert_same_trust(batched, loop)
    for name, tensor in batched.population.state().items():
        torch.testing.assert_close(tensor, loop.population.state()[name], rtol=0, atol=1e-8, msg=name)
    assert batched.network.ledger.summary() == loop.network.ledger.summary()


class TestReductions:
    def test_without_budget_it_trains_on_train_only(self, views: Views) -> None:
        one, summary = small.ended(views, small.MIXED, "methods.lntrust.budget=0", method="lntrust")
        plain, reference = small.shared_end(views, small.MIXED, method=small.TRAIN_ONLY)
        assert one.network.ledger.payload(phase="distil").sum() == 0
        assert one.network.ledger.payload(phase="probe").sum() > 0
        small.assert_same(one, plain)
        assert summary["per_node"]["self"] == reference["per_node"]["self"] != summary["per_node"]["test"]
        # Independent has the validation labels to train on, too.
        independent = small.shared_end(views, small.MIXED, method="independent")[1]
        assert independent["per_node"]["self"] != reference["per_node"]["self"]

    def test_one_node_alone(self, views: Views) -> None:
        (one, alone), (plain, trained) = (
            small.ended(views, *small.ALONE, small.MIXED, method=m) for m in ("lntrust", small.TRAIN_ONLY)
        )
        assert alone["test"] == alone["self"] == trained["test"] == trained["self"]
        assert alone["per_node"]["test_pooled"] == trained["per_node"]["test_pooled"]
        assert alone["bytes"]["total"] == 0
        assert one.state.closed.tolist() == [[1.0]]
        assert one.state.strength.tolist() == [0.0]  # nobody to learn from
        small.assert_same(one, plain)
        assert alone["method_report"]["importance"]["KL"] == 0


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
        one = small.made(views, small.MIXED, *small.SHORT)
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

    @pytest.mark.parametrize(("shard", "B", "sample"), [(300, 40, 50), (30, 30, 30)])
    def test_bytes(self, views: Views, shard: int, B: int, sample: int) -> None:
        """Of a shard that is smaller than sample and budget, all examples."""
        one = small.shared(views, small.TORCH, f"partition.shard={shard}")
        w, ledger = one.world, one.network.ledger
        question, answer = int(np.prod(w.input_shape)) * np.dtype(w.input_dtype).itemsize, 4 * 10
        distilling, refreshes = 3, 4  # rounds 2–4; after Stage 1, rounds 2, 4, and the end
        asker, answerer = w.edges[:, 0], w.edges[:, 1]
        probed = refreshes * (w.partition.validation.lengths + sample)
        assert (ledger.payload("query", "distil") == distilling * B * question).all()
        assert (ledger.payload("reply", "distil") == distilling * B * answer).all()
        assert (ledger.payload("query", "probe") == probed[asker] * question).all()
        assert (ledger.payload("reply", "probe") == probed[answerer] * answer).all()

    @pytest.mark.parametrize("setting", ["methods.lntrust.unlabelled=false", "partition.shard=0"])
    def test_without_a_pool(self, views: Views, setting: str) -> None:
        one = small.made(views, small.MIXED, *small.SHORT, setting)
        assert one.network.ledger.payload(phase="distil").sum() == 0
        probed = 3 * one.world.partition.validation.lengths[one.world.edges[:, 1]] * 40
        assert (one.network.ledger.payload("reply", "probe") == probed).all()
        phi = one.state.evidence.phi
        assert (phi[..., [0, 3, 4]] == 0).all()
        assert (phi[..., 5] > 0).any()
        assert one.state.pseudo is None


class TestForests:
    def fitted(self, run: Run) -> list[np.ndarray]:
        (forests,) = (s for s in run.population.stacks if isinstance(s, Estimators))
        return [t.numpy() for name, t in forests.state().items() if name.endswith("/examples")]

    def test_they_learn_from_pseudo_labels(self, views: Views) -> None:
        one = small.shared(views, small.MIXED)
        plain = self.fitted(small.shared(views, small.MIXED, method=small.TRAIN_ONLY))
        for node, before, after in zip((2, 5), plain, self.fitted(one), strict=True):
            assert len(after) > len(before)
            assert np.array_equal(after[: len(before)], before)
            assert np.isin(after[len(before) :], one.world.partition.shard[node]).all()

    def test_all_pseudo_labels_weigh_lambda_times_all_labels(self, views: Views) -> None:
        one = small.made(
            views, small.MIXED, "methods.lntrust.strength=0.25", "methods.lntrust.training_gate=false"
        )
        assert isinstance(one.method, LNTrust)
        pseudo = one.method.pseudo_labels(one.site, one.state)
        assert pseudo is not None
        weight = pseudo.weight.numpy()
        for i in range(6):
            mine = weight[pseudo.examples.owner == i]
            assert mine.sum() == pytest.approx(0.25 * one.labelled.lists.lengths[i], rel=1e-5)


def test_a_resumed_run_equals_an_uninterrupted_one_and_keeps_trust_over_time(
    views: Views, tmp_path: Path
) -> None:
    one = small.assert_resumes(views, tmp_path, small.MIXED)
    tables = [
        [pq.read_table(*tmp_path.glob(f"{run}/**/{name}.parquet")) for name in ("trust", "features")]
        for run in ("whole", "stopped")
    ]
    assert tables[0] == tables[1]
    trust, features = (table.to_pydict() for table in tables[0])
    known = {(i, i) for i in range(6)} | {tuple(edge) for edge in one.world.edges.tolist()}
    assert set(zip(trust["node"], trust["member"], strict=True)) == known
    assert len(trust["node"]) == 4 * len(known)
    assert all(0 <= strength <= 0.5 for strength in trust["lambda"])
    total: Counter[tuple[int, int]] = Counter()
    for number, node, alpha in zip(trust["round"], trust["node"], trust["trust"], strict=True):
        total[number, node] += alpha
    assert set(total) == {(number, node) for number in (0, 2, 4, 5) for node in range(6)}
    assert list(total.values()) == pytest.approx([1.0] * len(total))
    assert list(features) == [
        "node", "member", "overlap", "probe_accuracy", "weighted_probe_accuracy", "KL", "entropy",
        "degree",
    ]  # fmt: skip
    assert features["degree"] == pytest.approx(one.world.degrees[features["member"]] / 6)
