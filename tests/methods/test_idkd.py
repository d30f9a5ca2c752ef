"""IDKD's idea: label for the neighbours what one is sure of."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import MIXED, ROUNDS, TORCH, assert_differ, begun, made, record, shared

from lntrust.learners.views import Views
from lntrust.methods.idkd import homogenised

METHOD, B, SURE = "idkd", 40, 0.3
SETTINGS = f"methods.idkd={{budget={B}, threshold={SURE}, every=2, unlabelled=8}}"


class TestExchange:
    @pytest.mark.parametrize("silent", [None, 1])
    def test_against_loops(self, views64: Views, silent: int | None) -> None:
        """The mean of who is sure, oneself included. Forests say what they are sure of, and hear nobody."""
        sure_of = 0.7
        one = made(views64, MIXED, SETTINGS.replace(str(SURE), str(sure_of)), method=METHOD)
        if silent is not None:
            one.network.misbehaviour[silent] = lambda p: p * torch.nan
        state = one.method.exchange(one.site, 1, B)
        ids = state["examples"]
        assert (ids == ids[0]).all()
        assert len(ids[0].unique()) == B
        assert np.isin(ids[0].numpy(), one.world.partition.pool).all()
        p = one.population.predict_all(ids[0])
        votes = []
        for i in range(6):
            near = one.world.graph.neighbors(i) if one.population.takes_steps[i] else ()
            members = [i, *(j for j in near if j != silent)]
            for x in range(B):
                sure = [p[j, x] for j in members if p[j, x].max() > sure_of]
                votes.append(len(sure))
                assert bool(state["kept"][i, x]) == bool(sure)
                if sure:
                    mean = torch.stack(sure).mean(0)
                    # Replies travel in float32, one's own stay as they are.
                    torch.testing.assert_close(state["labels"][i, x], mean, rtol=0, atol=1e-6)
        assert min(votes) == 0
        assert max(votes) > 2

    def test_bytes(self, views: Views) -> None:
        """Ids and labels of what a node is sure of, to everybody who learns by gradients."""
        one = begun(views, MIXED, SETTINGS, method=METHOD)
        said = record(one.network, "heard", lambda own: (own.amax(-1) > SURE).sum(1).numpy())
        one()
        assert len(said) == ROUNDS // 2
        sender, receiver = one.world.edges.T
        learns = one.population.takes_steps.numpy()
        expected = sum(said)[sender] * (4 + 4 * 10) * learns[receiver]
        assert one.network.ledger.payload("reply", "labels").tolist() == expected.tolist()
        assert one.network.ledger.payload().sum() == expected.sum()
        assert len(set(expected.tolist())) > 3

    def test_nobody_is_sure_and_nothing_is_sent(self, views: Views) -> None:
        one = made(views, TORCH, SETTINGS.replace(str(SURE), "0.999999"), method=METHOD)
        assert one.network.ledger.summary()["total"] == 0


def test_only_what_was_kept_is_learned_with_the_label_that_was_said(views: Views) -> None:
    one = begun(views, TORCH, SETTINGS, method=METHOD)
    seen: list[tuple[Any, ...]] = record(
        one.population, "step", lambda batch, loss=None, targets=(), more=None: (targets, more)
    )
    states: list[Any] = []
    one(progress=lambda *_: states.append(one.state))
    steps = [(targets, more) for targets, more in seen if more is not None]
    assert len(steps) == ROUNDS * 5
    drawn = set()
    for k, ((labels, weight), more) in enumerate(steps):
        state = states[-ROUNDS + k // 5]
        for i in range(6):
            kept = state["examples"][i][state["kept"][i]].tolist()
            assert weight[i] == (1.0 if kept else 0.0)
            for u, x in enumerate(more[i].tolist() if kept else []):
                assert torch.equal(labels[i, u], state["labels"][i][state["examples"][i] == x][0])
                assert x in kept
                drawn.add((k, i, x))
    assert len(drawn) > len(steps) * 6 * 4  # not always the same


@given(seed=st.integers(0, 1000), B=st.integers(1, 4), U=st.integers(1, 4), weight=st.floats(0, 5))
def test_the_loss_against_torch(seed: int, B: int, U: int, weight: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, B + U, 3, generator=draw, dtype=torch.float64)
    labels = torch.randint(3, (2, B), generator=draw)
    said = torch.rand(2, U, 3, generator=draw, dtype=torch.float64).softmax(-1)
    got = homogenised(logits, labels, said, torch.full((2,), weight, dtype=torch.float64))
    loss = torch.nn.functional.cross_entropy
    expected = [
        loss(z[:B], y) + weight * loss(z[B:], q) for z, y, q in zip(logits, labels, said, strict=True)
    ]
    torch.testing.assert_close(got, torch.stack(expected), rtol=0, atol=1e-12)


def test_how_sure_one_must_be_matters(views: Views) -> None:
    assert_differ(
        *(shared(views, TORCH, SETTINGS.replace(str(SURE), s), method=METHOD) for s in ("0.3", "0.5"))
    )
