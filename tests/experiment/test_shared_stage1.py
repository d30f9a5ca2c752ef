"""Stage 1 once for several runs: the same bits as without, and taken only where it is the same."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from lntrust import LNTrustError, Study, load_study
from lntrust.core.files import read_tensors, write_tensors
from lntrust.experiment import Run
from lntrust.experiment.driver import Runs
from lntrust.learners.views import Views

Alone = Callable[..., dict[str, Any]]  # study, method → what such a run gives by itself
SMALL = [
    "graph.nodes=5", "partition.labelled=250", "training.stage1_rounds=5", "training.stage2_rounds=3",
    "training.refresh=2", "evaluation.every=2", "evaluation.checkpoint_every=1", "methods.lntrust.warmup=1",
    "methods.lntrust.budget=40", "methods.lntrust.sample=40", "methods.desa.condense_steps=5",
    'population.learners=[{name="linear",kind="linear",view="pixels",share=0.6},'
    '{name="forest",kind="forest",view="pixels",options={trees=3}}]',
]  # fmt: skip


def make(*overrides: str) -> Study:
    """Linear heads and forests; five rounds alone, three together."""
    return load_study("digits", [*SMALL, *overrides])


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, views: Views) -> Path:
    """A run of LNTrust that has left its Stage 1."""
    folder = tmp_path_factory.mktemp("begun")
    Run(make(), "lntrust", 0, views, folder=folder, share_stage1=True)()
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
        assert one.folder is not None
        return results(one.folder)

    return get


def results(folder: Path) -> dict[str, Any]:
    """All that a run leaves but for how long it took; files bit for bit."""
    summary = json.loads((folder / "summary.json").read_text())
    summary.pop("seconds")
    files = sorted((folder / "evaluations").glob("round-*"))
    return {
        "summary": summary,
        **{f.name: pq.read_table(f).to_pylist() for f in folder.glob("*.parquet")},
        **{f.name: f.read_bytes() for f in files},
    }


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("stage1/*.safetensors"))


def go(study: Study, method: str, views: Views, folder: Path, **options: Any) -> tuple[Path, list[int]]:
    """Carry out a run that shares; its folder, and the rounds it went through."""
    one = Run(study, method, 0, views, folder=folder, share_stage1=True)
    seen: list[int] = []
    one(progress=lambda done, *_: seen.append(done), **options)
    assert one.folder is not None
    return one.folder, seen


@pytest.mark.parametrize(
    "change",
    [
        "training.refresh=1",
        "training.stage2_rounds=4",
        "methods.lntrust.training_gate=false",
        "methods.lntrust.deployment_gate=off",
        "methods.lntrust.budget=0",
        "network.query=handle",
    ],
)
def test_what_differs_in_stage_2_begins_where_the_first_has_ended(
    views: Views, shared: Path, alone: Alone, change: str
) -> None:
    (file,) = files(shared)
    before = file.stat().st_mtime_ns
    folder, seen = go(make(change), "lntrust", views, shared)
    assert seen[0] == 5, "Stage 1 was not done again"
    assert files(shared) == [file]
    assert file.stat().st_mtime_ns == before
    assert results(folder) == alone(make(change))


def test_who_leaves_it_is_not_changed_by_it(begun: Path, alone: Alone) -> None:
    (summary,) = begun.rglob("summary.json")
    assert results(summary.parent) == alone(make())


@pytest.mark.parametrize("method", ["uniform", "mean_teacher", "desa"])
def test_methods_that_train_alike_before_they_speak_share_it(
    views: Views, tmp_path: Path, alone: Alone, method: str
) -> None:
    go(make(), "independent", views, tmp_path)
    second, seen = go(make(), method, views, tmp_path)
    assert seen[0] == 5
    assert len(files(tmp_path)) == 1
    assert results(second) == alone(make(), method)


def begins_at(study: Study, method: str, seed: int, views: Views, folder: Path) -> int:
    """The round a run begins at; then it is stopped."""
    began: list[int] = []

    def progress(done: int, *_: object) -> None:
        began.append(done)
        raise Stopped

    with pytest.raises(Stopped):
        Run(study, method, seed, views, folder=folder, share_stage1=True)(progress=progress)
    return began[0]


@pytest.mark.parametrize(
    ("method", "seed", "change"),
    [
        ("lntrust", 1, []),
        ("lntrust", 0, ["training.lr=0.02"]),
        ("lntrust", 0, ["methods.lntrust.lr=0.02"]),
        ("lntrust", 0, ["training.batch=16"]),
        ("lntrust", 0, ["training.steps=4"]),
        ("lntrust", 0, ["training.schedule=random_node"]),
        ("lntrust", 0, ["training.momentum=0.5"]),
        ("lntrust", 0, ["training.l2=0.01"]),
        ("lntrust", 0, ["training.stage1_rounds=6"]),
        ("lntrust", 0, ["partition.skew=3"]),
        ("lntrust", 0, ["partition.val_fraction=0.1"]),
        ("lntrust", 0, ["reading=paper"]),
        ("lntrust", 0, ["graph.attach=1"]),
        ("lntrust", 0, ["population.learners.1.options={trees=4}"]),
        ("lntrust", 0, ["evaluation.every=1"]),
        ("independent", 0, []),  # trains on validation labels, too
    ],
)
def test_another_stage_1_is_not_taken(
    views: Views, shared: Path, method: str, seed: int, change: list[str]
) -> None:
    assert begins_at(make("training.refresh=1"), "lntrust", 0, views, shared) == 5
    assert begins_at(make(*change), method, seed, views, shared) == 0


def test_a_common_start_is_another_stage_1(views: Views, tmp_path: Path) -> None:
    go(make(), "independent", views, tmp_path)
    assert begins_at(make(), "uniform", 0, views, tmp_path) == 5
    assert begins_at(make(), "d_psgd", 0, views, tmp_path) == 0


def test_it_is_really_taken(views: Views, shared: Path, alone: Alone) -> None:
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


def test_who_does_not_share_neither_takes_nor_leaves(views: Views, tmp_path: Path) -> None:
    Run(make(), "independent", 0, views, folder=tmp_path)()
    assert files(tmp_path) == []
    Run(make(), "independent", 0, views, share_stage1=True)()  # without a folder there is nowhere to
    go(make("training.stage2_rounds=0"), "independent", views, tmp_path)
    assert files(tmp_path) == [], "nothing comes after that could differ"
    go(make("training.stage1_rounds=0"), "independent", views, tmp_path)
    assert files(tmp_path) == [], "nothing was there to share"
    go(make(), "independent", views, tmp_path)
    seen: list[int] = []
    Run(make(), "uniform", 0, views, folder=tmp_path)(progress=lambda done, *_: seen.append(done))
    assert seen[0] == 0


class Stopped(BaseException):
    pass


def stop_at(round_: int) -> Callable[..., None]:
    def progress(done: int, *_: object) -> None:
        if done == round_:
            raise Stopped

    return progress


@pytest.mark.parametrize("every", [1, 100])
def test_a_run_that_took_it_can_be_stopped_and_resumed(
    views: Views, shared: Path, alone: Alone, every: int
) -> None:
    study = make("training.refresh=1", f"evaluation.checkpoint_every={every}")
    for stop in (5, 6, 7, 8):
        one = Run(study, "lntrust", 0, views, folder=shared, share_stage1=True)
        with pytest.raises(Stopped):
            one(resume=True, progress=stop_at(stop))
    last, seen = go(study, "lntrust", views, shared, resume=True)
    assert seen[0] >= 5
    assert results(last) == alone(study)


@pytest.mark.parametrize("stop", [2, 5, 6])
def test_a_run_that_was_to_leave_it_can_be_stopped_and_resumed(
    views: Views, tmp_path: Path, alone: Alone, stop: int
) -> None:
    one = Run(make(), "lntrust", 0, views, folder=tmp_path, share_stage1=True)
    with pytest.raises(Stopped):
        one(progress=stop_at(stop))
    assert len(files(tmp_path)) == (stop >= 5)
    first, seen = go(make(), "lntrust", views, tmp_path, resume=True)
    assert seen[0] == stop
    assert results(first) == alone(make())
    second, seen = go(make("training.refresh=1"), "lntrust", views, tmp_path)
    assert seen[0] == 5
    assert results(second) == alone(make("training.refresh=1"))


def test_one_that_was_stopped_in_stage_1_goes_on_from_its_own_checkpoint(
    views: Views, tmp_path: Path, begun: Path, alone: Alone
) -> None:
    study = make("training.refresh=1")
    one = Run(study, "lntrust", 0, views, folder=tmp_path, share_stage1=True)
    with pytest.raises(Stopped):
        one(progress=stop_at(3))
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)  # what another has left since
    last, seen = go(study, "lntrust", views, tmp_path, resume=True)
    assert seen[0] == 3
    assert results(last) == alone(study)


def test_stacked_seeds_share_among_themselves(views: Views, tmp_path: Path) -> None:
    def stack(folder: Path, share: bool, *overrides: str) -> tuple[list[dict[str, Any]], list[int]]:
        runs = Runs(make(*overrides), "lntrust", [0, 3], views, folder=folder, share_stage1=share)
        seen: list[int] = []
        runs(progress=lambda done, *_: seen.append(done))
        return [results(folder) for folder in runs.folders], seen

    first, _ = stack(tmp_path / "shared", True)
    second, seen = stack(tmp_path / "shared", True, "training.refresh=1")
    assert seen[0] == 5
    assert len(files(tmp_path)) == 1
    assert first == stack(tmp_path / "alone", False)[0]
    assert second == stack(tmp_path / "alone", False, "training.refresh=1")[0]
    one_seed = begins_at(make(), "lntrust", 3, views, tmp_path / "shared")
    assert one_seed == 0, "by itself it has rounding of its own"


def test_a_broken_file_says_so(views: Views, shared: Path) -> None:
    (file,) = files(shared)
    file.write_bytes(b"broken")
    with pytest.raises(LNTrustError, match=f"{file}: not a readable safetensors file"):
        go(make("training.refresh=1"), "lntrust", views, shared)


def test_another_versions_file_is_refused_by_name(tiny: Any, views: Views, tmp_path: Path) -> None:
    Runs(tiny(), "lntrust", [0], views, folder=tmp_path, share_stage1=True)()
    (kept,) = tmp_path.rglob("stage1/*.safetensors")
    save_file({"population/nothing": torch.zeros(1)}, kept)
    other = Runs(tiny("training.refresh=3"), "lntrust", [0], views, folder=tmp_path, share_stage1=True)
    with pytest.raises(LNTrustError, match=f"{kept.name}: does not fit this run; remove it"):
        other()
    kept.unlink()
    fresh = Runs(tiny("training.refresh=3"), "lntrust", [0], views, folder=tmp_path, share_stage1=True)
    assert fresh()[0]["test"] is not None
