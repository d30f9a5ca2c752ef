"""DeSA: anchors that neighbours average, and their logits on them."""

from typing import Any

import pytest
import small_runs as small
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lntrust.core.randomness import Seeds
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods.base import random_order
from lntrust.methods.desa import DeSA, DeSASettings, condense

METHOD = "desa"
QUICK = "methods.desa.condense_steps=5"
C, A, D = 10, 10, 64


def stack_of(run: Run, i: int) -> Any:
    return next(s for s in run.population.stacks if i in s.nodes.tolist())


def anchors_of(run: Run, i: int) -> Tensor:
    """Node i's anchors after averaging, [C, A, D]."""
    stack = stack_of(run, i)
    return run.state[f"anchors/{stack.learner.name}"][stack.nodes.tolist().index(i)]


def says(run: Run, j: int, x: Tensor) -> Tensor:
    """Logits of node j, a torch learner, on inputs [m, D]."""
    stack = stack_of(run, j)
    place = torch.tensor([stack.nodes.tolist().index(j)])
    out: Tensor = stack.logits_of(place, x.view(1, len(x), *stack.view.shape[1:]), torch.tensor([0]))[0]
    return out


def classes_of(run: Run) -> Tensor:
    """Of which classes each node has labelled examples: [n, C]."""
    rows = [[bool((run.world.labels[ids] == c).any()) for c in range(C)] for ids in run.labelled.lists]
    return torch.tensor(rows)


def same_kind(run: Run, i: int) -> list[int]:
    """Neighbours with node i's architecture."""
    return [j for j in run.world.graph.neighbors(i) if run.world.kinds[j] == run.world.kinds[i]]


class TestAnchors:
    def test_averaged_over_the_members_of_the_same_kind_that_have_the_class(self, views64: Views) -> None:
        one = small.shared(views64, small.TORCH, QUICK, method=METHOD)
        s, mean_of_several = DeSASettings(condense_steps=5), 0
        for stack in one.population.torch_stacks:
            own, has = condense(stack, one.labelled.lists, one.population.labels, s, one.seed)
            nodes = stack.nodes.tolist()
            for i in nodes:
                for c in range(C):
                    closed = [nodes.index(j) for j in (i, *same_kind(one, i))]
                    who = [k for k in closed if has[k, c]]
                    assert bool(one.state["has"][i, c]) == bool(who)
                    if who:
                        expected = torch.stack([own[k, c] for k in who]).mean(0)
                        torch.testing.assert_close(anchors_of(one, i)[c], expected, rtol=0, atol=1e-10)
                    mean_of_several += 1 < len(who) < len(closed)
        assert mean_of_several > 0  # somebody has it, somebody has not, and the mean leaves these out

    def test_a_step_draws_from_those_it_has(self) -> None:
        has = torch.rand(6, C * A, generator=torch.Generator().manual_seed(0)) < 0.5
        first, again, other = (random_order(Seeds.of(0, 6), "anchors", has, 2, t, 0) for t in (1, 1, 2))
        for i, row in enumerate(first):
            assert sorted(row.tolist()) == list(range(C * A))
            assert has[i, row].tolist() == sorted(has[i].tolist(), reverse=True)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_anchors_of_images(self, views64: Views) -> None:
        cnn = '{name="cnn",kind="cnn2d",view="image",options={width=2}}'
        one = small.made(views64, f"population.learners=[{cnn},{small.LINEAR}]", QUICK, method=METHOD)
        assert one.state["anchors/cnn"].shape == (3, C, A, D)
        assert all(t.isfinite().all() for t in small.parameters(one).values())


class TestTargets:
    def test_the_mean_logits_of_the_neighbours(self, views64: Views) -> None:
        """Of the same kind on the node's own anchor, of another kind on the neighbour's of that index."""
        one = small.shared(views64, small.TORCH, QUICK, "partition.skew=100", method=METHOD)
        has = one.state["has"]
        with one.network.uncharged():
            targets, answered = one.method.mean_logits(one.site, one.state)
        same = across = nobody = 0
        for i in range(6):
            for c in range(C):
                rows = slice(c * A, (c + 1) * A)
                said = []
                for j in one.world.graph.neighbors(i):
                    if not has[i, c]:
                        continue
                    if one.world.kinds[j] == one.world.kinds[i]:
                        said.append(says(one, j, anchors_of(one, i)[c]))
                        same += 1
                    elif has[j, c]:
                        said.append(says(one, j, anchors_of(one, j)[c]))
                        across += 1
                nobody += bool(has[i, c]) and not said
                assert answered[i, rows].tolist() == [bool(said)] * A
                if said:
                    mean = torch.stack(said).mean(0)
                    torch.testing.assert_close(targets[i, rows], mean, rtol=0, atol=1e-9)
        assert min(same, across, nobody) > 0

    def test_what_the_loss_is_given(self, views64: Views) -> None:
        """Labels, targets and inputs of the same anchors; and the share |S| / (|S| + |D|)."""
        one = small.begun(views64, small.TORCH, QUICK, method=METHOD)
        steps = small.record(one.population, "step", lambda _, *rest, **more: (*rest[1:], more.get("inputs")))
        one()
        seen = [each for each in steps if len(each) > 1]  # steps of Stage 1 have no targets
        assert len(seen) == small.ROUNDS * 5
        for (labels, use, teacher, answered, share), inputs in seen[:3]:
            for i in range(6):
                stack = stack_of(one, i)
                x = inputs[stack.learner.name][stack.nodes.tolist().index(i)]
                assert use[i].any()
                for u in torch.nonzero(use[i]).flatten().tolist():
                    candidates = anchors_of(one, i)[labels[i, u]]
                    assert (candidates == x[u]).all(-1).any()
                    assert teacher[i, u].abs().sum() > 0 or not answered[i, u]
                anchors = A * int(one.state["has"][i].sum())
                assert float(share[i]) == pytest.approx(anchors / (anchors + len(one.labelled.lists[i])))

    def test_a_broken_neighbour_does_not_count(self, views64: Views) -> None:
        one = small.made(views64, small.TORCH, QUICK, "graph.kind=complete", method=METHOD)
        stack = one.population.torch_stacks[0]
        theta = one.population.parameters(stack)
        theta[stack.nodes[0]] = torch.nan
        one.population.set_parameters(stack, theta)
        targets, answered = one.method.mean_logits(one.site, one.state)
        assert targets.isfinite().all()
        others = torch.arange(one.world.n) != stack.nodes[0]
        assert answered[others].any(1).all()

    def test_a_node_alone_has_no_targets(self, views64: Views) -> None:
        alone = (*small.ALONE, small.TORCH, QUICK)
        one, other = (small.made(views64, *alone, f"methods.desa.kd={kd}", method=METHOD) for kd in (0, 1))
        assert one.network.ledger.summary()["total"] == 0
        small.assert_same(one, other)


def parts(seed: int, B: int, U: int) -> dict[str, Tensor]:
    """Arguments of the loss for two nodes and four classes."""
    draw = torch.Generator().manual_seed(seed)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    return {
        "logits": 3 * randn(2, B + U, 4),
        "labels": torch.randint(4, (2, B), generator=draw),
        "of_anchor": torch.randint(4, (2, U), generator=draw),
        "use": torch.rand(2, U, generator=draw) < 0.6,
        "teacher": 5 * randn(2, U, 4),
        "answered": torch.rand(2, U, generator=draw) < 0.6,
        "share": torch.rand(2, generator=draw, dtype=torch.float64),
        "embedding": randn(2, B + U, 3),
    }


SHAPES = st.tuples(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 5))


def naive_contrast(
    real: Tensor, labels: Tensor, anchor: Tensor, of: Tensor, use: Tensor, tau: float
) -> float:
    """One node, example after example."""
    each = []
    for z, y in zip(real, labels, strict=True):
        log_share = (torch.cosine_similarity(z, anchor[use], dim=-1) / tau).log_softmax(0)
        if (of[use] == y).any():
            each.append(-float(log_share[of[use] == y].mean()))
    return sum(each) / len(each) if each else 0.0


class TestLoss:
    @given(SHAPES, st.floats(0, 2), st.floats(0.5, 20), st.floats(0, 1), st.floats(0.05, 2))
    def test_against_loops(
        self, shape: tuple[int, int, int], kd: float, temperature: float, kappa: float, tau: float
    ) -> None:
        p, B = parts(*shape), shape[1]
        settings = DeSASettings(
            kd=kd, temperature=temperature, soft_share=kappa, regulariser=0.5, contrast_temperature=tau
        )
        got = DeSA(settings).loss(**p)
        for i in range(2):
            z = p["logits"][i, B:]
            hard = torch.nn.functional.cross_entropy(z, p["of_anchor"][i], reduction="none")
            q = (p["teacher"][i] / temperature).softmax(-1)
            kl = torch.nn.functional.kl_div((z / temperature).log_softmax(-1), q, reduction="none").sum(-1)
            used = [u for u in range(len(z)) if p["use"][i, u]]
            soft = [u for u in used if p["answered"][i, u]]
            share = float(p["share"][i])
            plain = torch.nn.functional.cross_entropy(p["logits"][i, :B], p["labels"][i])
            expected = (1 - share) * float(plain)
            if used:
                expected += share * float(hard[used].mean())
            if soft:
                distil = kappa * temperature**2 * kl[soft].mean() + (1 - kappa) * hard[soft].mean()
                expected += kd * float(distil)
            e, of, use = p["embedding"][i], p["of_anchor"][i], p["use"][i]
            expected += 0.5 * naive_contrast(e[:B], p["labels"][i], e[B:], of, use, tau)
            assert float(got[i]) == pytest.approx(expected, rel=1e-8, abs=1e-9)

    @given(SHAPES)
    def test_anchors_that_are_not_there_leave_no_trace(self, shape: tuple[int, int, int]) -> None:
        """Whatever stands in their places, the loss and its gradient are the same, and finite.

        The contrast moves real examples only.
        """
        p, B = parts(*shape), shape[1]
        ends = []
        for change in (0.0, 1.0):
            q = {name: t.clone() for name, t in p.items()}
            for name in ("logits", "embedding"):
                q[name][:, B:] += change * (~p["use"])[..., None]
                q[name].requires_grad_()
            q["teacher"] += change * (~p["use"] | ~p["answered"])[..., None] * torch.arange(4)
            loss = DeSA().loss(**q)
            gradients = torch.autograd.grad(loss.sum(), (q["logits"], q["embedding"]))
            assert (gradients[1][:, B:] == 0).all()
            ends.append((loss.detach(), *gradients))
        for one, other in zip(*ends, strict=True):
            assert one.isfinite().all()
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9)

    def test_teachers_of_any_certainty(self) -> None:
        """At a low temperature a probability can be 0 in floating point; 0 · log 0 is 0."""
        logits, teacher = torch.zeros(1, 3, 2), torch.tensor([[[200.0, 0.0], [0.0, 0.0]]])
        yes, zero = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.int64)
        method = DeSA(DeSASettings(temperature=1.0))
        loss = method.loss(logits, zero[:, :1], zero, yes, teacher, yes, torch.zeros(1))
        assert loss.isfinite().all()

    @pytest.mark.parametrize("learner", [small.LINEAR, small.MLP])
    def test_linear_heads_have_nothing_to_contrast(self, views64: Views, learner: str) -> None:
        how = (f"population.learners=[{learner}]", QUICK, "training.stage2_rounds=1")
        ends = [small.made(views64, *how, f"methods.desa.regulariser={r}", method=METHOD) for r in (1.0, 0.0)]
        (with_, *_), (without, *_) = (run.population.torch_stacks for run in ends)
        assert torch.equal(with_.flat(), without.flat()) == (learner == small.LINEAR)


def test_bytes(views: Views) -> None:
    """Forests take no part."""
    one = small.shared(views, small.MIXED, QUICK, "graph.kind=complete", "partition.skew=100", method=METHOD)
    mine, known, kinds = classes_of(one), one.state["has"], one.world.kinds
    learns = one.population.takes_steps
    ledger = one.network.ledger
    anchors, averages, logits = (
        ledger.payload(kind, phase)
        for kind, phase in (("anchors", "anchors"), ("anchors", "average"), ("reply", "logits"))
    )
    a_class = 4 * A * D + 2
    inside = 0
    for e, (sender, receiver) in enumerate(one.world.edges.tolist()):
        same = kinds[sender] == kinds[receiver] and bool(learns[sender])
        inside += same
        assert anchors[e] == same * a_class * int(mine[sender].sum())
        assert averages[e] == same * a_class * int(known[sender].sum())
        # Of the same kind one tells about the receiver's anchors, of another about one's own.
        about = int(known[receiver if same else sender].sum())
        both = bool(learns[sender] and learns[receiver])
        assert logits[e] == both * small.ROUNDS * 4 * C * A * about
    assert inside > 0
    assert (known.sum(1) > mine.sum(1)).any()
    assert not known[~learns].any()
    assert {phase for phase, _, _ in ledger} == {"anchors", "average", "logits"}
