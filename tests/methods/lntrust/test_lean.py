"""Fewer questions: thin probes, a few neighbours to answer with, and no more of them than needed."""

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from small_runs import MIXED, TORCH, ended, levers, made, shared, study
from torch import Tensor

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods import Site, State
from lntrust.methods.lntrust.method import LNTrust
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.network import Network, Questions, Replies
from lntrust.trust.weights import top_k


class Probes:
    """A run, with whom it probed at every refresh and what it knew afterwards."""

    def __init__(self, views: Views, patch: pytest.MonkeyPatch, *overrides: str) -> None:
        self.edges: dict[int, list[int]] = {}  # asked about V_i in each round's refresh
        self.before: dict[int, State] = {}
        self.after: dict[int, State] = {}
        refresh, ask = LNTrust.refresh, Network.ask
        now = 0

        def refreshed(method: LNTrust, site: Site, state: State, t: int) -> State:
            nonlocal now
            now = t
            self.before[t] = state
            self.after[t] = refresh(method, site, state, t)
            return self.after[t]

        def asked(network: Network, questions: Questions, phase: str, edges: Any = None) -> Replies:
            if questions.source == "validation":
                every = range(len(network.edges))
                self.edges[now] = list(every) if edges is None else edges.tolist()
            return ask(network, questions, phase, edges)

        with patch.context() as patched:
            patched.setattr(LNTrust, "refresh", refreshed)
            patched.setattr(Network, "ask", asked)
            self.run = made(views, TORCH, *overrides)

    @property
    def thin(self) -> set[int]:
        """Refreshes that did not ask everybody."""
        return {t for t, edges in self.edges.items() if len(edges) < len(self.run.world.edges)}


class TestThinProbes:
    @pytest.mark.parametrize(
        ("overrides", "thin"),
        [
            (levers(probe_others=1), set()),
            (levers(probe_others=2), {2}),  # of 0, 2, 4 and the last, 5
            (levers(probe_others=3), {2, 4}),
            (levers(probe_others=2, refresh=1), {1, 3}),
            (levers(probe_others=4, final_rounds=1), {2}),  # of 0, 2, 3: the last before trust is frozen
            (levers(probe_others=4, final_rounds=2), set()),  # of 0 and 2
        ],
    )
    def test_at_the_first_the_last_and_every_so_manyth_everybody_is_asked(
        self, views: Views, monkeypatch: pytest.MonkeyPatch, overrides: list[str], thin: set[int]
    ) -> None:
        seen = Probes(views, monkeypatch, *levers(top_k=1), *overrides)
        assert seen.thin == thin
        assert len(seen.edges) > len(thin)

    def test_without_top_k_there_are_no_others(self, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
        assert Probes(views, monkeypatch, *levers(probe_others=3)).thin == set()

    @pytest.mark.parametrize("k", [1, 2])
    def test_bytes(self, views: Views, monkeypatch: pytest.MonkeyPatch, k: int) -> None:
        seen = Probes(views, monkeypatch, *levers(top_k=k, probe_others=3))
        world, ledger = seen.run.world, seen.run.network.ledger
        around = seen.run.site.around
        about = world.partition.validation.lengths + 50  # examples, with those of the shard
        expected = np.zeros(len(world.edges), np.int64)
        back = {tuple(edge): e for e, edge in enumerate(world.edges.tolist())}
        for t in (0, 2, 4, 5):
            if t in (2, 4):
                trusted = top_k(seen.before[t]["open"], k)
                asked = sorted(around.edge[trusted].tolist())
                assert len(asked) <= k * world.n
            else:
                asked = list(range(len(world.edges)))
            assert seen.edges[t] == asked
            for e in asked:
                asker, answerer = world.edges[e].tolist()
                expected[back[answerer, asker]] += about[asker] * 4 * 10
        assert ledger.payload("reply", "probe").tolist() == expected.tolist()

    def test_of_those_not_asked_the_evidence_is_what_it_was(
        self, views: Views, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = Probes(views, monkeypatch, *levers(top_k=1, probe_others=3))
        before, after = seen.after[0], seen.after[2]
        asked = top_k(seen.before[2]["open"], 1)
        others = seen.run.site.around.mask & ~asked
        others[:, 0] = False
        assert others.any()
        for name in ("evidence/rho", "evidence/mask", "probe/w_hat"):
            assert torch.equal(after[name][others], before[name][others]), name
        assert not torch.equal(after["evidence/rho"][asked], before["evidence/rho"][asked])
        owner = torch.from_numpy(seen.run.world.partition.validation.owner)
        p_before, p_after = (state["probe/probabilities"] for state in (before, after))
        assert torch.equal(p_after[others[owner]], p_before[others[owner]])
        assert not torch.equal(p_after[:, 0], p_before[:, 0]), "a node always hears itself"
        torch.testing.assert_close(after["closed"].sum(-1), torch.ones(6))

    def test_who_falls_silent_when_asked_is_not_remembered(self, views: Views) -> None:
        one = Run(study(TORCH, *levers(top_k=9, probe_others=3)), "lntrust", 0, views)
        one.network.misbehaviour[2] = lambda p: p if one.done < 4 else None
        one()
        it = (one.site.around.member == 2) & one.site.around.mask
        it[:, 0] = False
        assert it.any()
        assert not one.state["evidence/mask"][it].any()
        assert (one.state["closed"][it] == 0).all()


class TestRefresh:
    def test_the_method_may_refresh_in_a_rhythm_of_its_own(self, views: Views) -> None:
        assert shared(views, TORCH).state["log/round"].tolist() == [0, 2, 4, 5]
        assert made(views, TORCH, *levers(refresh=3)).state["log/round"].tolist() == [0, 3, 5]
        assert made(views, TORCH, *levers(refresh=9)).state["log/round"].tolist() == [0, 5]


def neighbours(one: Run) -> Tensor:
    """How many neighbours each node may ask when it is deployed."""
    members = one.method.deploy(one.site, one.state).members
    return torch.bincount(members[members[:, 0] != members[:, 1], 0], minlength=one.world.n)


class TestAnswering:
    @pytest.mark.parametrize("weighting", ["trust", "weighted_majority"])
    @pytest.mark.parametrize("k", [1, 2])
    def test_with_the_k_most_trusted(self, views: Views, k: int, weighting: str) -> None:
        off = levers(deployment_gate="off", weighting=weighting)
        one, summary = ended(views, TORCH, *off, *levers(answer_k=k), method="lntrust")
        plain, before = ended(views, TORCH, *off, method="lntrust")
        trusted = (plain.state["closed votes"].view(6, one.site.around.mask.shape[1], -1).sum(-1) > 0).sum(
            -1
        ) - 1
        assert torch.equal(neighbours(plain), trusted)
        assert torch.equal(neighbours(one), trusted.clamp(max=k))
        few = top_k(one.state["open"], k)
        few[:, 0] = True
        assert not (one.state["closed"][~few] > 0).any()
        torch.testing.assert_close(one.state["closed"].sum(-1), torch.ones(6))
        # Nothing else has changed: the same models, and the same trust among those who are left.
        torch.testing.assert_close(one.state["open"], plain.state["open"])
        assert summary["per_node"]["self"] == before["per_node"]["self"]
        assert summary["bytes"]["asked_per_input"] == trusted.clamp(max=k).double().mean()
        assert summary["bytes"]["asked_per_input"] < before["bytes"]["asked_per_input"]

    def test_one_after_another_until_sure(self, views: Views) -> None:
        """The surer a node must be, the more it asks; sure beyond doubt, its answers are the same."""
        off = ("methods.lntrust.deployment_gate=off", MIXED)
        plain = ended(views, *off, method="lntrust")[1]
        asked, summaries = [], []
        for kappa in (0.0, 0.3, 0.7, 1.0):
            summary = ended(views, *off, *levers(certainty=kappa), method="lntrust")[1]
            asked.append(summary["bytes"]["asked_per_input"])
            summaries.append(summary)
        assert asked == sorted(asked)
        assert asked[0] < asked[1] < asked[-1] < plain["bytes"]["asked_per_input"]
        assert summaries[-1]["per_node"]["test"] == plain["per_node"]["test"]
        assert summaries[-1]["per_node"]["test_pooled"] == plain["per_node"]["test_pooled"]
        for summary in summaries:  # nothing but the number of questions has changed
            assert summary["bytes"]["total"] == plain["bytes"]["total"]
            assert summary["per_node"]["self"] == plain["per_node"]["self"]

    def test_a_certainty_of_its_own_for_every_node(self, views: Views) -> None:
        """Who hears neighbours that are never quite sure may stop sooner, and nothing else has changed."""
        off = ("methods.lntrust.deployment_gate=off", MIXED)
        one, usual = ended(views, *off, *levers(certainty=0.9, typical_margin="true"), method="lntrust")
        plain = ended(views, *off, *levers(certainty=0.9), method="lntrust")[1]
        lead = one.state["typical margin"]
        assert lead.shape == (6,)
        assert ((lead > 0) & (lead < 1)).all()
        certainty = one.method.deploy(one.site, one.state).certainty
        assert isinstance(certainty, Tensor)
        torch.testing.assert_close(certainty, 0.9 * lead)
        assert 0 < usual["bytes"]["asked_per_input"] < plain["bytes"]["asked_per_input"]
        assert usual["bytes"]["total"] == plain["bytes"]["total"]
        assert usual["per_node"]["self"] == plain["per_node"]["self"]

    def test_without_a_certainty_all_are_asked(self, views: Views) -> None:
        one, usual = ended(views, TORCH, *levers(typical_margin="true"), method="lntrust")
        assert one.method.deploy(one.site, one.state).certainty is None
        assert usual["per_node"] == ended(views, TORCH, method="lntrust")[1]["per_node"]

    def test_a_vote_of_ones_own(self, views: Views) -> None:
        plain = ended(views, TORCH, method="lntrust")[0]
        one = ended(views, TORCH, *levers(self_share=0.25), method="lntrust")[0]
        expected = 0.75 * plain.state["closed"]
        expected[:, 0] += 0.25
        torch.testing.assert_close(one.state["closed"], expected)
        torch.testing.assert_close(one.state["open"], plain.state["open"])  # who teaches is another matter
        with pytest.raises(ValidationError, match="self_share needs one weight per member"):
            LNTrustSettings(self_share=0.5, weighting="weighted_majority")

    def test_bytes_of_an_answer_fall_with_who_is_asked(self, views: Views) -> None:
        for overrides in ([], levers(certainty=0.5), levers(answer_k=1), levers(reply="top3")):
            one, summary = ended(views, TORCH, *overrides, method="lntrust")
            each = one.network.deployment_bytes(1)
            per_input = summary["bytes"]["asked_per_input"]
            assert summary["bytes"]["per_deployed_query"] == pytest.approx(each * per_input)

    def test_who_answers_alone_asks_nobody(self, views: Views) -> None:
        one, summary = ended(
            views, TORCH, *levers(deployment_gate="evidence", evidence=0.999999999, certainty=1),
            method="lntrust",
        )  # fmt: skip
        alone = ~one.state["answers together"]
        assert alone.any()
        assert (neighbours(one)[alone] == 0).all()
        test, own = (np.array(summary["per_node"][name]) for name in ("test", "self"))
        assert (test == own)[alone.numpy()].all()

    def test_weights_by_class_have_no_order(self) -> None:
        with pytest.raises(ValidationError, match="certainty needs one weight per member"):
            LNTrustSettings(certainty=0.5, weighting="weighted_majority")
