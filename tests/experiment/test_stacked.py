"""Several seeds in one stack of tensors: every seed's result is that of a run by itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from stopped_runs import LINEAR, Make, folder_of, named, rounds_of, stop

from lntrust import LNTrustError, load_study
from lntrust.core.errors import CannotStackError
from lntrust.experiment.driver import Runs
from lntrust.learners.views import Views
from lntrust.methods import Method, Site, State, list_methods
from lntrust.world import build_world, load_dataset, side_by_side

SEEDS = (3, 0)
MORE = (
    "training.precision=float64", "training.stage2_rounds=5", "training.refresh=2", "evaluation.every=2",
    "evaluation.checkpoint_every=2", "methods.lntrust.budget=40", "methods.desa.condense_steps=20",
    "methods.centralized.epochs=3", "methods.fedmd.budget=50",
)  # fmt: skip


@pytest.fixture
def tiny(small: Any) -> Any:
    """What `make` makes runs of."""
    return lambda *overrides: small(*MORE, *overrides)


@pytest.fixture
def views(views64: Views) -> Views:
    return views64


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


OFF = (
    "query=handle", "reply=top3", "recall=2", "top_k=2", "refresh=1", "certainty=0.7", "self_share=0.1",
    "typical_margin=true", "prior_wins=0.5", "deployment_gate=evidence", "evidence=0.3", "final_rounds=1",
    "prior=accuracy", "split_validation=true",
)  # fmt: skip
LEVERS = [f"methods.lntrust.{change}" for change in OFF]  # everything of LNTrust that is off by default
UNEVEN = ("graph.nodes=12", "partition.labelled=600", "training.schedule=random_node", LINEAR)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        *((method, []) for method in sorted(list_methods())),
        ("lntrust", ["training.schedule=random_node"]),
        ("lntrust", ["partition.validation=fresh"]),
        ("lntrust", ["methods.lntrust.weighting=weighted_majority"]),
        ("d_psgd", ["deploy=trust"]),
        ("lntrust", [f"population.learners.{k}.noise=0.5" for k in (1, 3)]),
        ("lntrust", LEVERS),
        ("d_psgd", [*UNEVEN, "methods.d_psgd.local_steps=1"]),  # worlds whose draws fall unevenly
        ("d_psgd", [*UNEVEN, "methods.d_psgd.local_steps=3"]),
    ],
)
def test_every_seed_is_as_alone(method: str, changes: list[str], make: Make) -> None:
    single = [make(*changes, method=method, seed=seed)() for seed in SEEDS]
    if changes == LEVERS:
        assert len({summary["bytes"]["asked_per_input"] for summary in single}) == 2, "or nothing is shown"
    if method == "d_psgd" and "deploy=trust" not in changes and changes:
        assert len({summary["bytes"]["total"] for summary in single}) > 1, "or nothing is shown"
    stack = make(*changes, method=method, seed=SEEDS)()
    for seed, mine, theirs in zip(SEEDS, stack, single, strict=True):
        assert (mine["seed"], mine["stacked"]) == (seed, len(SEEDS))
        assert_same(mine, theirs)


@pytest.mark.parametrize("changes", [[], LEVERS], ids=["plain", "all levers"])
def test_a_stack_goes_on_where_it_stopped(make: Make, tmp_path: Path, changes: list[str]) -> None:
    of: dict[str, Any] = {"method": "lntrust", "seed": SEEDS}
    stop(make(*changes, **of, into=""), 5)
    assert len(list(tmp_path.rglob("stack-*/checkpoint.safetensors"))) == 1
    went_on = make(*changes, **of, into="")
    assert rounds_of(went_on, resume=True)[0] == 4, "from its last checkpoint"
    got = went_on(resume=True)
    for mine, theirs in zip(got, make(*changes, **of)(), strict=True):
        assert_same(mine, theirs)


class Taciturn(Method):
    """A user's method, written before seeds were stacked."""

    def report(self, site: Site, state: State) -> dict[str, Any]:  # type: ignore[override]
        return {"told": True}


def test_a_method_that_cannot_tell_of_one_world_is_refused_before_it_trains(make: Make) -> None:
    assert make(method=named(Taciturn))()["method_report"] == {"told": True}
    for deploy in ([], ["deploy=uniform"]):
        with pytest.raises(CannotStackError, match=r"Taciturn: report.*one by one"):
            make(*deploy, method=named(Taciturn), seed=SEEDS)
    with pytest.raises(CannotStackError, match="one by one"):
        make(method="lntrust", seed=SEEDS, certify=True)


@pytest.mark.parametrize("method", ["fedmd", "idkd"])
def test_pools_too_small_for_a_budget_in_one_world_only(method: str) -> None:
    views = Views(load_dataset("uci_har"), torch.device("cpu"), torch.float32)
    with pytest.raises(CannotStackError, match=f"{method}: pools of"):
        Runs(load_study("wearables", [f"methods.{method}.budget=2000"]), method, [0, 1], views)


def test_a_checkpoint_whose_evaluations_are_gone_says_what_to_remove(make: Make) -> None:
    stop(make(seed=SEEDS, into=""), 5)
    stop(make(seed=SEEDS[1], into=""), 1)
    with pytest.raises(LNTrustError, match=r"round-00002.safetensors: is gone; remove .*stack-") as error:
        make(seed=SEEDS, into="")(resume=True)
    Path(str(error.value).rpartition("remove ")[2].removesuffix(" to start over")).unlink()
    assert len(make(seed=SEEDS, into="")(resume=True)) == 2


def test_each_seed_has_a_folder_as_if_it_had_run_alone(make: Make, tmp_path: Path) -> None:
    stack: dict[str, Any] = {"method": "lntrust", "seed": SEEDS, "into": "together"}
    made = make(**stack)()
    for seed in SEEDS:
        folder = folder_of(make(method="lntrust", seed=seed, into="alone"))
        beside = tmp_path / "together" / folder.relative_to(tmp_path / "alone")
        names = {p.name for p in folder.iterdir()} - {"checkpoint.safetensors"}
        assert {p.name for p in beside.iterdir()} == names
        for file in (folder / "evaluations").iterdir():
            assert file.read_bytes() == (beside / "evaluations" / file.name).read_bytes()
    assert not list((tmp_path / "together").rglob("stack-*")), "what only a stop would need is gone"
    again = make(**stack | {"seed": SEEDS[1]})(resume=True)
    assert again == made[1], "finished runs are read again, alone or together"
    assert make(**stack)(resume=True) == made


def test_worlds_side_by_side_share_no_edge_and_keep_their_secrets(tiny: Any, views64: Views) -> None:
    worlds = [build_world(tiny(), views64.dataset, seed) for seed in SEEDS]
    both = side_by_side(worlds)
    n, N = worlds[0].n, len(views64.dataset.labels)
    assert both.n == len(SEEDS) * n
    assert (both.edges[:, 0] // n == both.edges[:, 1] // n).all()
    for s, world in enumerate(worlds):
        assert (both.edges[both.edges_of(s)] - s * n == world.edges).all()
        # What one seed may know another may not.
        assert (both.labels[s * N : (s + 1) * N] == world.labels).all()
        assert (both.class_distribution[both.nodes_of(s)] == world.class_distribution).all()
    assert side_by_side(worlds[:1]) is worlds[0]
