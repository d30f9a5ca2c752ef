"""Looking back: a twin that never learns from neighbours, and what it undoes."""

from pathlib import Path

import pytest
import torch
from small_runs import MIXED, TORCH, TRAIN_ONLY, assert_resumes, levers, made, parameters, shared, study
from torch import Tensor

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods import Site
from lntrust.methods.base import below
from lntrust.methods.lntrust.twin import Twin

# Lessons that are wrong, confident, and taken to heart.
HARMFUL = (TORCH, *levers(strength=20, training_gate="false", confidence_floor=0, look_back=0.6))


def poisonous(p: Tensor) -> Tensor:
    """Certain of the class after the right one."""
    return torch.nn.functional.one_hot((p.argmax(-1) + 1) % p.shape[-1], p.shape[-1]).to(p.dtype)


def poisoned(views: Views, *overrides: str) -> Run:
    one = Run(study(*HARMFUL, *overrides), "lntrust", 0, views)
    one.network.misbehaviour.update(dict.fromkeys(range(6), poisonous))
    one()
    return one


def twins(one: Run) -> dict[str, Tensor]:
    return {name: t for name, t in below("twin/", one.state).items() if not name.startswith("steps/")}


class TestHarmless:
    @pytest.mark.parametrize("learners", [TORCH, MIXED])
    def test_without_distillation_both_are_the_same_bit_for_bit(self, views: Views, learners: str) -> None:
        one = made(views, learners, *levers(budget=0, look_back=0.9))
        assert one.state["undone"].tolist() == [0] * 6
        assert one.state["doubt"].tolist() == [1.0] * 6
        for stack in one.population.torch_stacks:
            for name in stack.state():
                whole = f"{stack.learner.name}/{name}"
                assert torch.equal(twins(one)[whole], parameters(one)[whole]), whole

    def test_a_twin_that_finds_nothing_changes_nothing(self, views: Views) -> None:
        plain, one = shared(views, TORCH), made(views, TORCH, *levers(look_back=0.999999))
        if one.state["undone"].any():
            pytest.fail("this study was chosen since its lessons do no harm")
        assert all(torch.equal(tensor, parameters(one)[name]) for name, tensor in parameters(plain).items())
        assert plain.network.ledger.summary() == one.network.ledger.summary(), "nothing is exchanged for it"


class TestHarmful:
    def test_the_twin_never_learns_from_neighbours(self, views: Views) -> None:
        one, plain = poisoned(views), shared(views, TORCH, method=TRAIN_ONLY)
        for name, tensor in parameters(plain).items():
            assert torch.equal(tensor, twins(one)[name]), name

    def test_what_was_distilled_is_undone(self, views: Views) -> None:
        one, plain = poisoned(views), shared(views, TORCH, method=TRAIN_ONLY)
        assert (one.state["undone"] > 0).sum() > 3, (
            "everybody was poisoned; a few have too few labels to know"
        )
        lambdas = one.state["log/lambda"]
        at_the_end = lambdas[-1] < lambdas[-2]
        assert at_the_end.any()
        for stack in one.population.torch_stacks:
            undone = at_the_end[stack.nodes]
            for name, own in stack.state().items():  # momentum as well
                alone = parameters(plain)[f"{stack.learner.name}/{name}"]
                assert torch.equal(own[undone], alone[undone]), name
                assert not any(torch.equal(a, b) for a, b in zip(own[~undone], alone[~undone], strict=True))

    def test_validation_is_as_good_as_the_twin_s(self, views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[tuple[Tensor, Tensor, Tensor]] = []  # who is hurt; own answers before and after
        theirs: list[Tensor] = []
        undo = Twin.undo

        def watched(twin: Twin, site: Site, nodes: Tensor) -> None:
            before = site.own_validation()
            undo(twin, site, nodes)
            seen.append((nodes, before, site.own_validation()))
            theirs.append(twin._twin.answer(site.own_validation_plan))

        monkeypatch.setattr(Twin, "undo", watched)
        one = poisoned(views)
        owner = torch.from_numpy(one.world.partition.validation.owner)
        assert len(seen) == 3  # rounds 2 and 4, and the end
        for (hurt, before, after), twin in zip(seen, theirs, strict=True):
            rows = hurt[owner]
            assert torch.equal(after[rows], twin[rows])
            assert torch.equal(after[~rows], before[~rows])
        assert not seen[0][0].any(), "nothing had been distilled yet"
        assert seen[1][0].any()

    def test_only_some_are_undone(self, views: Views) -> None:
        """One node's neighbours are honest: it keeps what it has learned."""
        one = Run(study(*HARMFUL), "lntrust", 0, views)
        liar = int(one.world.degrees.argmin())
        one.network.misbehaviour[liar] = poisonous
        one()
        hears = torch.zeros(6, dtype=torch.bool)
        hears[one.world.edges[one.world.edges[:, 1] == liar, 0]] = True
        assert not hears.all()
        assert one.state["undone"].shape == (6,)
        assert torch.equal(one.state["doubt"], 0.5 ** one.state["undone"].float())

    def test_each_time_halves_the_strength(self, views: Views) -> None:
        one = poisoned(views)
        undone, strength = one.state["undone"], one.state["log/lambda"]
        assert one.state["log/round"].tolist() == [0, 2, 4, 5]
        assert (strength[:2] == 20).all()
        assert set(strength[2].tolist()) <= {10.0, 20.0}
        assert torch.equal(strength[3], 20 * 0.5 ** undone.float())
        assert torch.equal(one.state["doubt"], 0.5 ** undone.float())


class TestRecords:
    @pytest.mark.parametrize("learners", [TORCH, MIXED])
    def test_a_resumed_run_equals_an_uninterrupted_one(
        self, views: Views, tmp_path: Path, learners: str
    ) -> None:
        harmful = [learners, *HARMFUL[1:]]
        whole = assert_resumes(views, tmp_path, *harmful, *levers(look_back=0.55))
        assert whole.state["undone"].any()

    def test_no_certificate_for_models_that_are_changed_afterwards(self, views: Views) -> None:
        with pytest.raises(LNTrustError, match=r"--certify: .*look_back"):
            Run(study(TORCH, *levers(look_back=0.9)), "lntrust", 0, views, certify=True)
