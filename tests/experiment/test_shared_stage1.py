"""Stage 1 once for several runs: the same bits as without, and taken only where it is the same."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from stopped_runs import Stopped, results, rounds_of, stop

from lntrust import LNTrustError, Study
from lntrust.core.files import read_tensors, write_tensors
from lntrust.experiment import Run
from lntrust.experiment.driver import Runs
from lntrust.learners.views import Views

Make = Callable[..., Study]
Alone = Callable[..., dict[str, Any]]  # study, method → what such a run gives by itself
FORESTS = """population.learners=[{name="linear",kind="linear",view="pixels",share=0.6},
    {name="forest",kind="forest",view="pixels",options={trees=3}}]""".replace("\n", "")
MORE = (
    FORESTS, "training.stage1_rounds=5", "training.stage2_rounds=3", "training.refresh=2",
    "evaluation.every=2", "evaluation.checkpoint_every=1", "methods.lntrust.budget=40",
    "methods.desa.condense_steps=5",
)  # fmt: skip


@pytest.fixture(scope="module")
def make(small: Make) -> Make:
    """Linear heads and forests; five rounds alone, three together."""
    return lambda *overrides: small(*MORE, *overrides)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, views: Views, make: Make) -> Path:
    """A run of LNTrust that has left its Stage 1."""
    folder = tmp_path_factory.mktemp("begun")
    go(make(), "lntrust", views, folder)
    return folder


@pytest.fixture
def shared(begun: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(begun, tmp_path / "shared"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, views: Views) -> Alone:
    """What a run gives that shares nothing; each is made once."""
    folder = tmp_path_factory.mktemp("alone")

    def get(study: Study, method: str = "lntrust") -> dict[str, Any]:
        one = Run(study, method, 0, views, folder=folder)
        one(resume=True)
        return results(one.folders[0])

    return get


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("stage1/*.safetensors"))


def go(study: Study, method: str, views: Views, folder: Path, resume: bool = False) -> tuple[Path, list[int]]:
    """Carry out a run that shares; its folder, and the rounds it went through."""
    one = Run(study, method, 0, views, folder=folder, share_stage1=folder)
    seen = rounds_of(one, resume)
    return one.folders[0], seen


@pytest.mark.parametrize(
    "change",
    ["training.refresh=1", "training.stage2_rounds=4", "methods.lntrust.budget=0", "network.query=handle"],
)
def test_what_differs_in_stage_2_begins_where_the_first_has_ended(
    make: Make, views: Views, shared: Path, alone: Alone, change: str
) -> None:
    (file,) = files(shared)
    before = file.stat().st_mtime_ns
    folder, seen = go(make(change), "lntrust", views, shared)
    assert seen[0] == 5, "Stage 1 was not done again"
    assert files(shared) == [file]
    assert file.stat().st_mtime_ns == before
    assert results(folder) == alone(make(change))


def test_who_leaves_it_is_not_changed_by_it(make: Make, begun: Path, alone: Alone) -> None:
    assert results(begun) == alone(make())


@pytest.mark.parametrize("method", ["uniform", "mean_teacher", "desa"])
def test_methods_that_train_alike_before_they_speak_share_it(
    make: Make, views: Views, tmp_path: Path, alone: Alone, method: str
) -> None:
    go(make(), "independent", views, tmp_path)
    assert begins_at(make(), "d_psgd", 0, views, tmp_path) == 0, "a common start is another Stage 1"
    second, seen = go(make(), method, views, tmp_path)
    assert seen[0] == 5
    assert len(files(tmp_path)) == 1
    assert results(second) == alone(make(), method)


def begins_at(study: Study, method: str, seed: int, views: Views, folder: Path) -> int:
    """The round a run begins at; then it is stopped."""

    def progress(done: int, *_: object) -> None:
        raise Stopped(done)

    with pytest.raises(Stopped) as stopped:
        Run(study, method, seed, views, folder=folder, share_stage1=folder)(progress=progress)
    return int(stopped.value.args[0])


@pytest.mark.parametrize(
    "change",
    [
        "training.lr=0.02", "methods.lntrust.lr=0.02", "training.batch=16", "training.steps=4",
        "training.schedule=random_node", "training.momentum=0.5", "training.l2=0.01",
        "training.stage1_rounds=6", "partition.skew=3", "partition.val_fraction=0.1", "reading=paper",
        "graph.attach=1", "population.learners.1.options={trees=4}", "evaluation.every=1",
    ],
)  # fmt: skip
def test_another_stage_1_is_not_taken(make: Make, views: Views, begun: Path, change: str) -> None:
    assert begins_at(make(change), "lntrust", 0, views, begun) == 0


def test_nor_that_of_another_seed_or_method(make: Make, views: Views, begun: Path) -> None:
    assert begins_at(make("training.refresh=1"), "lntrust", 0, views, begun) == 5
    assert begins_at(make(), "lntrust", 1, views, begun) == 0
    assert begins_at(make(), "independent", 0, views, begun) == 0, "it trains on validation labels, too"


def test_it_is_really_taken(make: Make, views: Views, shared: Path, alone: Alone) -> None:
    """Other parameters in the file are other results."""
    (file,) = files(shared)
    tensors, metadata = read_tensors(file)
    weights = [name for name, t in tensors.items() if "weight" in name and t.dim() == 3]
    assert weights
    write_tensors(file, tensors | {name: torch.zeros_like(tensors[name]) for name in weights}, metadata)
    study = make("training.refresh=1")
    second, _ = go(study, "lntrust", views, shared)
    assert results(second) != alone(study)
    file.unlink()
    third, seen = go(study, "lntrust", views, shared)
    assert seen[0] == 0
    assert files(shared) == [file], "and left there again"
    assert results(third) == alone(study)


def test_who_does_not_share_neither_takes_nor_leaves(make: Make, views: Views, tmp_path: Path) -> None:
    Run(make(), "independent", 0, views, folder=tmp_path)()
    assert files(tmp_path) == []
    go(make("training.stage2_rounds=0"), "independent", views, tmp_path)
    assert files(tmp_path) == [], "nothing comes after that could differ"
    go(make("training.stage1_rounds=0"), "independent", views, tmp_path)
    assert files(tmp_path) == [], "nothing was there to share"
    go(make(), "independent", views, tmp_path)
    assert rounds_of(Run(make(), "uniform", 0, views, folder=tmp_path))[0] == 0


@pytest.mark.parametrize("every", [1, 100])
def test_a_run_that_took_it_can_be_stopped_and_resumed(
    make: Make, views: Views, shared: Path, alone: Alone, every: int
) -> None:
    study = make("training.refresh=1", f"evaluation.checkpoint_every={every}")
    for number in (5, 6, 7, 8):
        stop(Run(study, "lntrust", 0, views, folder=shared, share_stage1=shared), number, resume=True)
    last, seen = go(study, "lntrust", views, shared, resume=True)
    assert seen[0] >= 5
    assert results(last) == alone(study)


@pytest.mark.parametrize(("stopped", "others"), [(2, False), (3, True), (5, False), (6, False)])
def test_a_run_that_was_to_leave_it_goes_on_from_its_own_checkpoint(
    make: Make, views: Views, tmp_path: Path, begun: Path, alone: Alone, stopped: int, others: bool
) -> None:
    """Even if another has left its Stage 1 since."""
    stop(Run(make(), "lntrust", 0, views, folder=tmp_path, share_stage1=tmp_path), stopped)
    assert len(files(tmp_path)) == (stopped >= 5)
    for file in files(begun) if others else []:
        shutil.copytree(file.parent, tmp_path / file.parent.relative_to(begun))
    first, seen = go(make(), "lntrust", views, tmp_path, resume=True)
    assert seen[0] == stopped
    assert results(first) == alone(make())
    second, seen = go(make("training.refresh=1"), "lntrust", views, tmp_path)
    assert seen[0] == 5
    assert results(second) == alone(make("training.refresh=1"))


def test_stacked_seeds_share_among_themselves(make: Make, views: Views, tmp_path: Path) -> None:
    def stack(folder: Path, share: bool, *overrides: str) -> tuple[list[dict[str, Any]], list[int]]:
        where = folder if share else None
        runs = Runs(make(*overrides), "lntrust", [0, 3], views, folder=folder, share_stage1=where)
        seen = rounds_of(runs)
        return [results(folder) for folder in runs.folders], seen

    first, _ = stack(tmp_path / "shared", True)
    second, seen = stack(tmp_path / "shared", True, "training.refresh=1")
    assert seen[0] == 5
    assert len(files(tmp_path)) == 1
    assert first == stack(tmp_path / "alone", False)[0]
    assert second == stack(tmp_path / "alone", False, "training.refresh=1")[0]
    # By itself a seed has rounding of its own.
    assert begins_at(make(), "lntrust", 3, views, tmp_path / "shared") == 0


def test_a_file_that_is_broken_or_another_versions_is_refused_by_name(
    make: Make, views: Views, shared: Path
) -> None:
    (file,), study = files(shared), make("training.refresh=1")
    file.write_bytes(b"broken")
    with pytest.raises(LNTrustError, match=f"{file}: not a readable safetensors file"):
        go(study, "lntrust", views, shared)
    save_file({"population/nothing": torch.zeros(1)}, file)
    with pytest.raises(LNTrustError, match=f"{file.name}: does not fit this run: .*; remove it"):
        go(study, "lntrust", views, shared)
    file.unlink()
    assert go(study, "lntrust", views, shared)[1][0] == 0
