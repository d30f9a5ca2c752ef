"""Several seeds in one stack of tensors: every seed's result is that of a run by itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lntrust import LNTrustError, Study, load_study
from lntrust.core.errors import CannotStackError
from lntrust.core.files import read_tensors
from lntrust.experiment.driver import Runs
from lntrust.experiment.run import Run
from lntrust.learners.views import Views
from lntrust.methods import Method, Site, State, list_methods
from lntrust.world import build_world, load_dataset, side_by_side

SMALL = [
    "graph.nodes=6", "partition.labelled=300", "training.stage1_rounds=2", "training.stage2_rounds=4",
    "training.refresh=2", "evaluation.every=2", "evaluation.checkpoint_every=2", "training.precision=float64",
    "methods.lntrust.warmup=1", "methods.lntrust.budget=40", "methods.lntrust.sample=50",
    "methods.desa.condense_steps=20", "methods.centralized.epochs=3", "methods.fedmd.budget=50",
]  # fmt: skip
SEEDS = (3, 0, 7)


@pytest.fixture(scope="module")
def views() -> Views:
    return Views(load_dataset("digits"), torch.device("cpu"), torch.float64)


def study(*overrides: str) -> Study:
    return load_study("digits", [*SMALL, *overrides])


class EnoughError(Exception):
    """What stops a run in the midst of it."""


def stop(done: int, *_: object) -> None:
    if done == 5:
        raise EnoughError


def assert_same(a: Any, b: Any, where: str = "") -> None:
    """Equal, numbers up to rounding, which 200 steps of Adam make a little of."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a.keys() - {"seconds", "stacked"}:
            assert_same(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for k, pair in enumerate(zip(a, b, strict=True)):
            assert_same(*pair, f"{where}/{k}")
    elif isinstance(a, float) and isinstance(b, float):
        assert a == pytest.approx(b, rel=1e-4, abs=1e-6), where
    else:
        assert a == b, where


@pytest.mark.parametrize("method", sorted(list_methods()))
def test_every_method_gives_what_it_gives_alone(method: str, views: Views) -> None:
    together = Runs(study(), method, SEEDS, views)()
    for seed, summary in zip(SEEDS, together, strict=True):
        assert summary["seed"] == seed
        assert summary["stacked"] == len(SEEDS)
        assert_same(summary, Run(study(), method, seed, views)())


@pytest.mark.parametrize(
    "change",
    [
        "training.schedule=random_node",
        "network.query=handle",
        "partition.validation=fresh",
        "deploy=trust",
        "methods.lntrust.top_k=2",
        "methods.lntrust.weighting=weighted_majority",
    ],
)
def test_so_does_every_way_to_set_a_study(change: str, views: Views) -> None:
    method = "d_psgd" if change == "deploy=trust" else "lntrust"
    together = Runs(study(change), method, SEEDS, views)()
    for seed, summary in zip(SEEDS, together, strict=True):
        assert_same(summary, Run(study(change), method, seed, views)())


# Everything of LNTrust that is off by default.
LEVERS = [
    f"methods.lntrust.{change}"
    for change in (
        "query=handle", "reply=top3", "recall=2", "top_k=2", "probe_others=2", "refresh=1", "answer_k=2",
        "certainty=0.7", "typical_margin=true", "self_share=0.1", "prior_wins=0.5",
        "importance_power=0.5", "training_gate=evidence", "deployment_gate=evidence",
        "evidence=0.3", "look_back=0.6", "final_rounds=1", "prior=accuracy", "calibrate=true",
    )
]  # fmt: skip


def test_so_do_all_levers_at_once(views: Views) -> None:
    together = Runs(study(*LEVERS), "lntrust", SEEDS, views)()
    alone = [Run(study(*LEVERS), "lntrust", seed, views)() for seed in SEEDS]
    assert len({summary["bytes"]["asked_per_input"] for summary in alone}) == 3, "or nothing is shown"
    for mine, theirs in zip(together, alone, strict=True):
        assert_same(mine, theirs)


def test_a_stack_with_all_levers_goes_on_where_it_stopped(views: Views, tmp_path: Path) -> None:
    with pytest.raises(EnoughError):
        Runs(study(*LEVERS), "lntrust", SEEDS, views, folder=tmp_path)(progress=stop)
    got = Runs(study(*LEVERS), "lntrust", SEEDS, views, folder=tmp_path)(resume=True)
    for mine, theirs in zip(got, Runs(study(*LEVERS), "lntrust", SEEDS, views)(), strict=True):
        assert_same(mine, theirs)


@pytest.mark.parametrize("steps", [1, 3])
def test_worlds_whose_draws_fall_unevenly_mix_as_they_would_alone(steps: int, views: Views) -> None:
    one_kind = 'population.learners=[{name="linear",kind="linear",view="pixels"}]'
    often = ("graph.nodes=12", "partition.labelled=600", "training.schedule=random_node", one_kind)
    uneven = study(*often, f"methods.d_psgd.local_steps={steps}")
    together = Runs(uneven, "d_psgd", SEEDS, views)()
    alone = [Run(uneven, "d_psgd", seed, views)() for seed in SEEDS]
    assert len({summary["bytes"]["total"] for summary in alone}) > 1, "or nothing is shown"
    for mine, theirs in zip(together, alone, strict=True):
        assert_same(mine, theirs)


class Taciturn(Method):
    """A user's method, written before seeds were stacked."""

    def report(self, site: Site, state: State) -> dict[str, Any]:  # type: ignore[override]
        return {"told": True}


def test_a_method_that_cannot_tell_of_one_world_is_refused_before_it_trains(views: Views) -> None:
    name = f"{__name__}:Taciturn"
    assert Run(study(), name, 0, views)()["method_report"] == {"told": True}
    for deploy in ([], ["deploy=uniform"]):
        with pytest.raises(CannotStackError, match=r"Taciturn: report.*one by one"):
            Runs(study(*deploy), name, SEEDS, views)


def test_pools_too_small_for_fedmd_in_one_world_only() -> None:
    views = Views(load_dataset("uci_har"), torch.device("cpu"), torch.float32)
    with pytest.raises(CannotStackError, match="fedmd: pools of"):
        Runs(load_study("wearables", ["methods.fedmd.budget=2000"]), "fedmd", [0, 1], views)


def test_a_checkpoint_whose_evaluations_are_gone_says_what_to_remove(views: Views, tmp_path: Path) -> None:
    with pytest.raises(EnoughError):
        Runs(study(), "uniform", SEEDS, views, folder=tmp_path)(progress=stop)
    gone = Run(study(), "uniform", SEEDS[1], views, folder=tmp_path)
    with pytest.raises(EnoughError):
        gone(progress=lambda done, *_: stop(5 if done == 1 else 0))
    with pytest.raises(LNTrustError, match=r"round-00002.safetensors: is gone; remove .*stack-") as error:
        Runs(study(), "uniform", SEEDS, views, folder=tmp_path)(resume=True)
    Path(str(error.value).rpartition("remove ")[2].removesuffix(" to start over")).unlink()
    assert len(Runs(study(), "uniform", SEEDS, views, folder=tmp_path)(resume=True)) == 3


def test_seeds_do_not_notice_each_other(views: Views) -> None:
    """Bit for bit the same answers, whoever stands beside."""
    a, b = (Runs(study(), "lntrust", seeds, views) for seeds in ((0, 3), (3, 9)))
    a(), b()
    for name, predicted in a._evaluations[1][6].items():
        assert np.array_equal(predicted, b._evaluations[0][6][name])


def test_each_seed_has_a_folder_as_if_it_had_run_alone(views: Views, tmp_path: Path) -> None:
    Runs(study(), "lntrust", SEEDS, views, folder=tmp_path / "together")()
    for seed in SEEDS:
        one = Run(study(), "lntrust", seed, views, folder=tmp_path / "alone")
        one()
        assert one.folder is not None
        beside = tmp_path / "together" / one.slug
        names = {p.name for p in one.folder.iterdir()} - {"checkpoint.safetensors"}
        assert {p.name for p in beside.iterdir()} == names
        for file in (one.folder / "evaluations").iterdir():
            alone, together = (
                read_tensors(folder / "evaluations" / file.name)[0] for folder in (one.folder, beside)
            )
            assert all(torch.equal(alone[name], together[name]) for name in alone)
    assert not list((tmp_path / "together").rglob("stack-*")), "what only a stop would need is gone"


def test_a_stack_goes_on_where_it_stopped(views: Views, tmp_path: Path) -> None:
    with pytest.raises(EnoughError):
        Runs(study(), "lntrust", SEEDS, views, folder=tmp_path)(progress=stop)
    assert len(list(tmp_path.rglob("stack-*/checkpoint.safetensors"))) == 1
    went_on = Runs(study(), "lntrust", SEEDS, views, folder=tmp_path)
    seen: list[int] = []
    got = went_on(resume=True, progress=lambda done, *_: seen.append(done))
    assert seen[0] == 4, "from the checkpoint of round 4"
    for mine, theirs in zip(got, Runs(study(), "lntrust", SEEDS, views)(), strict=True):
        assert_same(mine, theirs)


def test_finished_runs_are_read_again_alone_or_together(views: Views, tmp_path: Path) -> None:
    together = Runs(study(), "uniform", SEEDS, views, folder=tmp_path)()
    alone = Run(study(), "uniform", SEEDS[1], views, folder=tmp_path)(resume=True)
    assert alone == together[1]
    assert Runs(study(), "uniform", SEEDS, views, folder=tmp_path)(resume=True) == together


def test_a_guard_may_object_before_anything_is_written(views: Views, tmp_path: Path) -> None:
    def never() -> None:
        raise LNTrustError("not yours any more")

    with pytest.raises(LNTrustError, match="not yours"):
        Runs(study(), "independent", SEEDS, views, folder=tmp_path, guard=never)()
    assert not list(tmp_path.rglob("*.json"))


def test_no_certificate_for_a_stack(views: Views) -> None:
    with pytest.raises(LNTrustError, match="one by one"):
        Runs(study(), "lntrust", SEEDS, views, certify=True)


def test_worlds_side_by_side_share_no_edge_and_keep_their_secrets(views: Views) -> None:
    worlds = [build_world(study(), views.dataset, seed) for seed in SEEDS]
    both = side_by_side(worlds)
    n, N = worlds[0].n, len(views.dataset.labels)
    assert both.n == 3 * n
    assert (both.edges[:, 0] // n == both.edges[:, 1] // n).all()
    for s, world in enumerate(worlds):
        assert (both.edges[both.edges_of(s)] - s * n == world.edges).all()
        assert (both.labels[s * N : (s + 1) * N] == world.labels).all(), (
            "what one seed may know another may not"
        )
        assert (both.class_distribution[both.nodes_of(s)] == world.class_distribution).all()
    assert side_by_side(worlds[:1]) is worlds[0]
