"""DeSA: anchors that neighbours average, and their logits on them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FLOAT64, FOREST, LINEAR, MLP, TORCH, made, parameters, shared, study, told
from torch import Tensor

from lntrust.core.losses import cross_entropy
from lntrust.experiment import Run
from lntrust.learners import Batch, Population
from lntrust.learners.views import Views
from lntrust.methods.anchors import Recipe, condense
from lntrust.methods.desa import DeSA, DeSASettings, masked_mean, supervised_contrast

METHOD = "desa"
QUICK = "methods.desa.condense_steps=5"
FORESTS = f"population.learners=[{LINEAR},{FOREST}]"
ONLY = {"linear": f"population.learners=[{LINEAR}]", "mlp": f"population.learners=[{MLP}]"}
ROUNDS, C, A, D = 4, 10, 10, 64


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
    @pytest.mark.parametrize("learners", [TORCH, FORESTS], ids=["torch", "forests"])
    def test_averaged_over_the_members_of_the_same_kind_that_have_the_class(
        self, views64: Views, learners: str
    ) -> None:
        one = shared(views64, learners, FLOAT64, QUICK, method=METHOD)
        recipe = Recipe(A, 5, 1.0, 0.5, 128, 256)
        mean_of_several = 0
        for stack in one.population.torch_stacks:
            own, has = condense(stack, one.labelled.lists, one.population.labels, recipe, one.seed)
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

    def test_forests_take_no_part(self, views64: Views) -> None:
        one = shared(views64, FORESTS, FLOAT64, QUICK, method=METHOD)
        forest = ~one.population.takes_steps
        assert forest.any()
        assert not one.state["has"][forest].any()
        assert [name for name in one.state if name.startswith("anchors/")] == ["anchors/linear"]

    def test_they_stay_as_they_are_in_training(self, views64: Views) -> None:
        short = made(views64, TORCH, FLOAT64, QUICK, "training.stage2_rounds=1", method=METHOD)
        one = shared(views64, TORCH, FLOAT64, QUICK, method=METHOD)
        for name in ("anchors/linear", "anchors/mlp", "has"):
            assert torch.equal(one.state[name], short.state[name])

    @pytest.mark.parametrize("batch", [7, 64, 10_000])
    def test_a_step_draws_from_those_it_has(self, views64: Views, batch: int) -> None:
        one = Run(study(TORCH, FLOAT64, f"methods.desa.batch={batch}"), METHOD, 0, views64)
        assert isinstance(one.method, DeSA)
        draw = torch.Generator().manual_seed(0)
        has = torch.rand(6, C * A, generator=draw) < 0.5
        first, again, other = (one.method._draw(one.site, has, t, 0) for t in (1, 1, 2))
        assert first.shape == (6, min(batch, C * A))
        for i, row in enumerate(first):
            assert len(row.unique()) == len(row)
            assert int(has[i, row].sum()) == min(batch, int(has[i].sum()))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_anchors_of_images(self, views64: Views) -> None:
        cnn = '{name="cnn",kind="cnn2d",view="image",options={width=2}}'
        one = made(views64, f"population.learners=[{cnn},{LINEAR}]", FLOAT64, QUICK, method=METHOD)
        assert one.state["anchors/cnn"].shape == (3, C, A, D)
        assert all(t.isfinite().all() for t in parameters(one).values())


class TestTargets:
    def test_the_mean_logits_of_the_neighbours_who_tell(self, views64: Views) -> None:
        """Of the same kind on the node's own anchor, of another kind on the neighbour's of that index."""
        one = shared(views64, TORCH, FLOAT64, QUICK, "partition.classes_per_node=3", method=METHOD)
        assert isinstance(one.method, DeSA)
        has = one.state["has"]
        with one.network.uncharged():
            targets, heard = one.method._logits(one.site, one.state)
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
                assert heard[i, rows].tolist() == [bool(said)] * A
                if said:
                    mean = torch.stack(said).mean(0)
                    torch.testing.assert_close(targets[i, rows], mean, rtol=0, atol=1e-9)
        assert min(same, across, nobody) > 0

    def test_what_the_loss_is_given(self, views64: Views, monkeypatch: pytest.MonkeyPatch) -> None:
        """Labels, targets and inputs of the same anchors; and the share |S| / (|S| + |D|)."""
        seen: list[tuple[Any, ...]] = []
        step = Population.step

        def recorded(self: Population, batch: Batch, *rest: Any, **more: Any) -> Tensor:
            if rest:  # steps of Stage 1 have no targets
                seen.append((rest[1], more["inputs"]))
            return step(self, batch, *rest, **more)

        monkeypatch.setattr(Population, "step", recorded)
        one = made(views64, TORCH, FLOAT64, QUICK, method=METHOD)
        assert len(seen) == ROUNDS * 5
        for (labels, use, teacher, heard, share), inputs in seen[:3]:
            for i in range(6):
                stack = stack_of(one, i)
                x = inputs[stack.learner.name][stack.nodes.tolist().index(i)]
                assert use[i].any()
                for u in torch.nonzero(use[i]).flatten().tolist():
                    candidates = anchors_of(one, i)[labels[i, u]]
                    assert (candidates == x[u]).all(-1).any()
                    assert teacher[i, u].abs().sum() > 0 or not heard[i, u]
                anchors = A * int(one.state["has"][i].sum())
                assert float(share[i]) == pytest.approx(anchors / (anchors + len(one.labelled.lists[i])))

    def test_a_broken_neighbour_is_not_listened_to(self, views64: Views) -> None:
        one = made(views64, TORCH, FLOAT64, QUICK, "graph.kind=complete", method=METHOD)
        assert isinstance(one.method, DeSA)
        stack = one.population.torch_stacks[0]
        theta = one.population.parameters(stack)
        theta[stack.nodes[0]] = torch.nan
        one.population.set_parameters(stack, theta)
        targets, told = one.method._logits(one.site, one.state)
        assert targets.isfinite().all()
        others = torch.arange(one.world.n) != stack.nodes[0]
        assert told[others].any(1).all()

    def test_a_node_alone_is_told_nothing(self, views64: Views) -> None:
        alone = ("graph.nodes=1", "partition.labelled=60", TORCH, FLOAT64, QUICK)
        one, other = (made(views64, *alone, f"methods.desa.kd={kd}", method=METHOD) for kd in (0.0, 1.0))
        assert one.network.ledger.summary()["total"] == 0
        for name, tensor in parameters(one).items():
            assert torch.equal(tensor, parameters(other)[name]), name


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
        "told": torch.rand(2, U, generator=draw) < 0.6,
        "share": torch.rand(2, generator=draw, dtype=torch.float64),
        "embedding": randn(2, B + U, 3),
    }


SHAPES = st.tuples(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 5))


def naive_contrast(
    real: Tensor, labels: Tensor, anchor: Tensor, of: Tensor, use: Tensor, tau: float
) -> float:
    """One node, example after example."""
    kept = [u for u in range(len(anchor)) if use[u]]
    each = []
    for z, y in zip(real, labels, strict=True):
        similar = [torch.cosine_similarity(z, anchor[u], dim=0) / tau for u in kept]
        mine = [k for k, u in enumerate(kept) if of[u] == y]
        if mine:
            log_all = torch.logsumexp(torch.stack(similar), 0)
            each.append(-sum(float(similar[k] - log_all) for k in mine) / len(mine))
    return sum(each) / len(each) if each else 0.0


class TestLoss:
    @given(SHAPES, st.floats(0, 2), st.floats(0.5, 20), st.floats(0, 1))
    def test_against_loops(
        self, shape: tuple[int, int, int], kd: float, temperature: float, kappa: float
    ) -> None:
        p, B = parts(*shape), shape[1]
        settings = DeSASettings(kd=kd, temperature=temperature, soft_share=kappa, regulariser=0.5)
        got = DeSA(settings).loss(**p)
        for i in range(2):
            z = p["logits"][i, B:]
            hard = torch.nn.functional.cross_entropy(z, p["of_anchor"][i], reduction="none")
            soft = (p["teacher"][i] / temperature).softmax(-1)
            kl = torch.nn.functional.kl_div((z / temperature).log_softmax(-1), soft, reduction="none").sum(-1)
            used = [u for u in range(len(z)) if p["use"][i, u]]
            heard = [u for u in used if p["told"][i, u]]
            share = float(p["share"][i])
            expected = (1 - share) * float(
                torch.nn.functional.cross_entropy(p["logits"][i, :B], p["labels"][i])
            )
            if used:
                expected += share * float(hard[used].mean())
            if heard:
                distil = kappa * temperature**2 * kl[heard].mean() + (1 - kappa) * hard[heard].mean()
                expected += kd * float(distil)
            e = p["embedding"][i]
            expected += 0.5 * naive_contrast(
                e[:B], p["labels"][i], e[B:], p["of_anchor"][i], p["use"][i], 0.07
            )
            assert float(got[i]) == pytest.approx(expected, rel=1e-8, abs=1e-9)

    @given(SHAPES)
    def test_without_its_terms_it_is_cross_entropy(self, shape: tuple[int, int, int]) -> None:
        p = parts(*shape)
        p["share"], p["use"] = torch.zeros_like(p["share"]), torch.zeros_like(p["use"])
        del p["embedding"]
        got = DeSA(DeSASettings(kd=0.0, regulariser=0.0)).loss(**p)
        plain = cross_entropy(p["logits"][:, : shape[1]], p["labels"])
        torch.testing.assert_close(got, plain, rtol=0, atol=1e-12)

    @given(SHAPES, st.floats(0.05, 2))
    def test_contrast_against_loops(self, shape: tuple[int, int, int], tau: float) -> None:
        p, B = parts(*shape), shape[1]
        e = p["embedding"]
        rest = (p["of_anchor"], p["use"], tau)
        got = supervised_contrast(e[:, :B], p["labels"], e[:, B:], *rest)
        for i in range(2):
            naive = naive_contrast(e[i, :B], p["labels"][i], e[i, B:], rest[0][i], rest[1][i], tau)
            assert float(got[i]) == pytest.approx(naive, rel=1e-9, abs=1e-9)

    @given(SHAPES)
    def test_anchors_that_are_not_there_leave_no_trace(self, shape: tuple[int, int, int]) -> None:
        """Whatever stands in their places, the loss and its gradient are the same, and finite."""
        p, B = parts(*shape), shape[1]
        ends = []
        for change in (0.0, 1.0):
            q = {name: t.clone() for name, t in p.items()}
            for name in ("logits", "embedding"):
                q[name][:, B:] += change * (~p["use"])[..., None]
                q[name].requires_grad_()
            q["teacher"] += change * (~p["use"] | ~p["told"])[..., None] * torch.arange(4)
            loss = DeSA().loss(**q)
            gradients = torch.autograd.grad(loss.sum(), (q["logits"], q["embedding"]))
            ends.append((loss.detach(), *gradients))
        for one, other in zip(*ends, strict=True):
            assert one.isfinite().all()
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9)

    @given(SHAPES)
    def test_the_contrast_moves_real_examples_only(self, shape: tuple[int, int, int]) -> None:
        p, B = parts(*shape), shape[1]
        p["embedding"].requires_grad_()
        (gradient,) = torch.autograd.grad(DeSA().loss(**p).sum(), p["embedding"], allow_unused=True)
        assert (gradient[:, B:] == 0).all()

    def test_teachers_of_any_certainty(self) -> None:
        """At a low temperature a probability can be 0 in floating point; 0 · log 0 is 0."""
        method = DeSA(DeSASettings(temperature=1.0))
        logits = torch.zeros(1, 3, 2, dtype=torch.float32)
        teacher = torch.tensor([[[200.0, 0.0], [0.0, 0.0]]])
        yes = torch.ones(1, 2, dtype=torch.bool)
        zero = torch.zeros(1, 2, dtype=torch.int64)
        loss = method.loss(logits, zero[:, :1], zero, yes, teacher, yes, torch.zeros(1))
        assert loss.isfinite().all()

    @given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=1, max_size=6))
    def test_masked_mean(self, rows: list[tuple[float, bool]]) -> None:
        values, mask = (torch.tensor(column) for column in zip(*rows, strict=True))
        kept = [v for v, m in rows if m]
        expected = sum(kept) / len(kept) if kept else 0.0
        assert float(masked_mean(values.double(), mask)) == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize("kind", ["linear", "mlp"])
    def test_linear_heads_have_nothing_to_contrast(self, views64: Views, kind: str) -> None:
        with_, without = (
            made(views64, ONLY[kind], FLOAT64, QUICK, f"methods.desa.regulariser={r}", method=METHOD)
            for r in (1.0, 0.0)
        )
        moved = [not torch.equal(t, parameters(without)[name]) for name, t in parameters(with_).items()]
        assert any(moved) == (kind == "mlp")

    @pytest.mark.parametrize("setting", ["kd=0", "temperature=5", "soft_share=0.5", "per_class=5", "batch=5"])
    def test_settings_matter(self, views64: Views, setting: str) -> None:
        how = (TORCH, FLOAT64, QUICK)
        plain = parameters(shared(views64, *how, method=METHOD))
        other = parameters(made(views64, *how, f"methods.desa.{setting}", method=METHOD))
        assert all(not torch.allclose(t, other[name], rtol=0, atol=1e-9) for name, t in plain.items())


class TestMessages:
    @pytest.mark.parametrize("learners", [TORCH, FORESTS], ids=["torch", "forests"])
    def test_bytes(self, views: Views, learners: str) -> None:
        one = shared(views, learners, QUICK, "partition.classes_per_node=3", method=METHOD)
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
            assert logits[e] == both * ROUNDS * 4 * C * A * about
        assert inside > 0
        assert (known.sum(1) > mine.sum(1)).any()
        assert {phase for phase, _, _ in ledger} == {"anchors", "average", "logits"}

    def test_deployment_costs_nothing(self, views: Views) -> None:
        assert Run(study(TORCH, QUICK), METHOD, 0, views)()["bytes"]["per_deployed_query"] == 0

    def test_forests_are_as_they_would_be_alone_and_the_run_says_so(self, views: Views) -> None:
        said: list[str] = []
        one = Run(study(FORESTS, QUICK), METHOD, 0, views, notice=said.append)
        got, plain = one(), Run(study(FORESTS), "independent", 0, views)()
        assert [s for s in said if "forest" in s]
        for i in torch.nonzero(~one.population.takes_steps).flatten().tolist():
            assert got["per_node"]["test_pooled"][i] == plain["per_node"]["test_pooled"][i]


class Stopped(BaseException):
    pass


class TestRuns:
    @pytest.mark.parametrize("schedule", ["every_node", "random_node"])
    def test_loop_and_batched_are_equal_in_float64(self, views64: Views, schedule: str) -> None:
        how = (TORCH, FLOAT64, QUICK, f"training.schedule={schedule}")
        batched, loop = (made(views64, *how, method=METHOD, backend=b) for b in ("batched", "loop"))
        assert set(batched.state) == set(loop.state)
        for name, tensor in (batched.state | batched.population.state()).items():
            other = (loop.state | loop.population.state())[name]
            torch.testing.assert_close(tensor, other, rtol=0, atol=1e-8, msg=name)
        assert batched.network.ledger.summary() == loop.network.ledger.summary()

    @pytest.mark.parametrize(
        "odd", [("partition.classes_per_node=1",), ("partition.minimum=6", "partition.labelled=36")]
    )
    def test_hardly_any_examples(self, views: Views, odd: tuple[str, ...]) -> None:
        one = made(views, TORCH, QUICK, *odd, method=METHOD)
        assert not one.state["has"].all()
        assert all(t.isfinite().all() for t in parameters(one).values())

    def test_a_resumed_run_equals_an_uninterrupted_one(self, views: Views, tmp_path: Path) -> None:
        small = study(TORCH, QUICK, "evaluation.checkpoint_every=1")
        summary = Run(small, METHOD, 0, views)()

        def progress(done: int, *_: object) -> None:
            if done == 4:
                raise Stopped

        with pytest.raises(Stopped):
            Run(small, METHOD, 0, views, folder=tmp_path)(progress=progress)
        assert told(Run(small, METHOD, 0, views, folder=tmp_path)(resume=True)) == told(summary)
