"""The roofline counts what has to be multiplied, all of it, and nothing else."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from benchmarks.speed import roofline
from benchmarks.speed.data import random_views
from benchmarks.speed.roofline import Roofline, Schedule, Work
from lntrust import LNTrustError, Study, load_study
from lntrust.experiment import Run
from lntrust.learners.views import Views

BY_HAND = Work("heads", nodes=2, classes=3, features=5, batch=7, budget=11, asked=(4, 6), examples=8)


class TestCounting:
    def test_by_hand(self) -> None:
        """A product of [2,3,5] with [2,7,5] is 2·3·5·7 multiplications and as many additions. A run: 4 rounds
        of 5 steps, 3 of them with distillation."""
        assert BY_HAND.step_flops == 2 * (2 * 2 * 3 * 5 * 7) == 840
        assert BY_HAND.distil_flops == 2 * (2 * 2 * 3 * 5 * 11) + 2 * (4 + 6) * 3 * 5 == 1620
        got = roofline.flops([BY_HAND, BY_HAND], Schedule(rounds=4, distilling=3, steps=5))
        assert list(got) == ["step", "supervised_round", "distilling_round", "run"]
        assert list(got.values()) == [1680, 8400, 8400 + 3240, 4 * 8400 + 3 * 3240]
        products = ("logits", "gradient", "distil logits", "distil gradient", "asked")
        seconds = dict(zip(products, (1.0, 2.0, 10.0, 20.0, 70.0), strict=True))
        part = Roofline(BY_HAND, seconds, dict.fromkeys(seconds, ""))
        total = roofline.total([part, part], Schedule(rounds=4, distilling=3, steps=5))
        assert list(total.values()) == [6.0, 30.0, 230.0, 4 * 30.0 + 3 * 200.0]

    def test_the_paper_s_study(self) -> None:
        """250 rounds of 5 steps; 195 of them distil."""
        study = load_study("sparse-cifar10")
        settings = Run(study, "lntrust", 0, random_views(study, features=4)).method.settings
        assert roofline.schedule(study, "lntrust", settings) == Schedule(250, 195, 5)
        assert roofline.schedule(study, "independent", settings) == Schedule(250, 0, 5)

    def test_shorter_in_proportion(self) -> None:
        short = roofline.shortened(load_study("sparse-cifar10"), 50)
        assert (short.training.stage1_rounds, short.training.stage2_rounds) == (10, 40)
        assert short.methods["lntrust"] == {"strength": 0.4, "warmup": 1}
        study = load_study("sparse-cifar10")
        assert roofline.shortened(study, None) is study
        assert roofline.shortened(study, 300) is study

    def test_work_is_counted_on_the_run_s_own_draws(self, heads: Study, codes: Views) -> None:
        """Against sets in plain Python: who is asked about what in the first distilling round."""
        run = Run(heads, "lntrust", 0, codes)
        ids = run.site.unlabelled("distil", 20, 2).tolist()
        asked: dict[int, set[int]] = {i: set() for i in range(10)}
        for asker, answerer in run.world.edges.tolist():
            asked[answerer] |= set(ids[asker])
        got = roofline.work(run)
        assert [(w.stack, w.nodes) for w in got] == [("EfficientNet-B0", 1), ("MobileNetV2", 9)]
        for index, each in enumerate(got):
            mine = [i for i in range(10) if run.world.kinds[i] == index]
            assert each.asked == tuple(len(asked[i]) for i in mine)
            assert each.examples == len(set.union(*(asked[i] for i in mine)))
            assert (each.classes, each.features, each.batch, each.budget) == (10, 16, 8, 20)
        for each in roofline.work(Run(heads, "independent", 0, codes)):  # who does not distil asks nothing
            assert (each.budget, sum(each.asked), each.distil_flops) == (0, 0, 0)


class TestProducts:
    """Every form is the product it claims to be; else the yardstick would be of another length."""

    @pytest.fixture
    def tensors(self) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        return torch.randn(3, 2, 5), torch.randn(3, 4, 5)

    def test_logits_and_gradient(self, tensors: tuple[Tensor, Tensor]) -> None:
        weight, x = tensors
        right = torch.einsum("kcd,krd->kcr", weight, x)
        for form, call in roofline.logits_forms(weight, x).items():
            got = _result(call)
            assert torch.allclose(got if got.shape == right.shape else got.mT, right, atol=1e-5), form
        right = x.sum(1, keepdim=True).expand_as(weight)  # the forms multiply by ones
        for form, call in roofline.gradient_forms(weight, x).items():
            assert torch.allclose(_result(call), right, atol=1e-5), form

    def test_asked(self, tensors: tuple[Tensor, Tensor]) -> None:
        """All heads on all examples, or each on its own number of them; here 7, none and 5."""
        weight, x = tensors
        pool = x.flatten(0, 1)
        right = torch.einsum("kcd,ud->kcu", weight, pool)
        wide, flipped, alike, own = roofline.asked_forms(weight, pool, (7, 0, 5)).values()
        assert torch.allclose(_result(wide).view_as(right), right, atol=1e-5)
        assert torch.allclose(_result(flipped).T.reshape(right.shape), right, atol=1e-5)
        assert torch.allclose(_result(alike), right[..., :4], atol=1e-5)
        assert [tuple(part.shape) for part in cast(list[Tensor], own())] == [(2, 7), (2, 5)]
        pieces = roofline.asked_forms(weight, pool, (7,) * 3)["mm of the asked pairs"]
        assert torch.allclose(cast(list[Tensor], pieces())[-1], right[2, :, :7], atol=1e-5)

    def test_the_fastest_of_two_measurements_counts(self) -> None:
        one = Roofline(BY_HAND, {"logits": 1.0, "gradient": 4.0}, {"logits": "a", "gradient": "a"})
        two = Roofline(BY_HAND, {"logits": 2.0, "gradient": 3.0}, {"logits": "b", "gradient": "b"})
        assert one.better(two) == two.better(one)
        assert one.better(two).seconds == {"logits": 1.0, "gradient": 3.0}
        assert one.better(two).forms == {"logits": "a", "gradient": "b"}


def _result(call: Callable[[], Any]) -> Tensor:
    got = call()
    return torch.stack(got) if isinstance(got, list) else got


def test_top_k_is_learned(heads: Study, codes: Views) -> None:
    study = heads.model_copy(update={"methods": {"lntrust": {"top_k": 1}}})
    with pytest.raises(LNTrustError, match="top_k"):
        roofline.work(Run(study, "lntrust", 0, codes))
