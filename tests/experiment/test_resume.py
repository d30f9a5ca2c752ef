"""A run that is stopped at any moment and resumed ends with the same bits as one that is not."""

from pathlib import Path

import pytest
import torch
from stopped_runs import Make, checkpointed, named, results, stop

from lntrust import LNTrustError
from lntrust.core.files import read_tensors, write_tensors
from lntrust.methods import Method, Site, State
from lntrust.network import Questions


def assert_same(first: Path, second: Path) -> None:
    assert results(first) == results(second)
    assert checkpointed(first) == checkpointed(second)


class Remembers(Method):
    """Carries a running mean of what neighbours say, distils towards it, and charges for it."""

    def start(self, site: Site) -> State:
        n, C = site.population.n, site.population.classes
        shape = (n, site.world.study.partition.shard, C)
        return {"mean": torch.full(shape, 1 / C), "asked": torch.zeros((), dtype=torch.int64)}

    def round(self, site: Site, state: State, t: int) -> State:
        super().round(site, state, t)
        shard = torch.from_numpy(site.world.partition.shard.values).view(site.population.n, -1)
        replies = site.network.ask(Questions.of(shard, "shard"), "distil")
        asker = site.network.edges[replies.edge, 0]
        said = torch.zeros_like(state["mean"]).index_add_(0, asker, replies.regular())
        mean = 0.5 * state["mean"] + 0.5 * said / torch.bincount(asker)[:, None, None]

        def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return -(targets * logits.log_softmax(-1)).sum(-1).mean(-1)

        site.population.descend("distil", shard, loss, (mean,))
        return {"mean": mean, "asked": state["asked"] + 1}


@pytest.mark.parametrize("method", ["independent", "uniform", "centralized", named(Remembers)])
@pytest.mark.parametrize("schedule", ["every_node", "random_node"])
def test_stopped_after_every_round(make: Make, tmp_path: Path, method: str, schedule: str) -> None:
    more = ("network.query=handle", "partition.validation=fresh", "training.stage2_rounds=4")
    changes = (f"training.schedule={schedule}", *more)
    whole = make(*changes, method=method, into="whole")
    whole()
    for number in range(whole.rounds + 1):
        stop(make(*changes, method=method, into="stopped"), number, resume=True)
        assert not list((tmp_path / "stopped").rglob("summary.json"))
    make(*changes, method=method, into="stopped")(resume=True)
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_checkpoints_that_are_behind(make: Make, tmp_path: Path) -> None:
    """Evaluations of rounds after the last checkpoint are made again."""
    changes = ("evaluation.checkpoint_every=3", "evaluation.every=1", "training.stage2_rounds=6")
    make(*changes, into="whole")()
    stop(make(*changes, into="stopped"), 5)
    (checkpoint,) = tmp_path.glob("stopped/**/checkpoint.safetensors")
    assert read_tensors(checkpoint)[1]["round"] == "3"
    for path in checkpoint.parent.glob("evaluations/round-0000[45]*"):
        path.write_bytes(b"to be made again")
    make(*changes, into="stopped")(resume=True)
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_without_a_checkpoint_or_without_resume_it_starts_over(make: Make, tmp_path: Path) -> None:
    first = make(into="whole")()
    make(into="new")(resume=True)
    assert_same(tmp_path / "whole", tmp_path / "new")
    stop(make(into="again"), 4)
    (checkpoint,) = tmp_path.glob("again/**/checkpoint.safetensors")
    checkpoint.write_bytes(b"nonsense")
    make(into="again")()
    assert_same(tmp_path / "whole", tmp_path / "again")
    finished = make(into="whole")
    assert finished(resume=True) == first, "what is finished is not run again"
    assert finished.done == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("fingerprint", r"checkpoint.safetensors: belongs to another run \(0123456789"),
        ("missing", r"checkpoint.safetensors: does not fit this run: .*remove it"),  # another version's
        ("shape", r"checkpoint.safetensors: does not fit this run: .*remove it"),
    ],
)
def test_what_does_not_belong_to_a_run_is_refused(
    make: Make, tmp_path: Path, change: str, words: str
) -> None:
    stop(make(into="runs"), 4)
    (path,) = tmp_path.rglob("checkpoint.safetensors")
    tensors, metadata = read_tensors(path)
    name = next(name for name in tensors if name.startswith("population/linear/param/"))
    if change == "fingerprint":
        metadata["fingerprint"] = "0123456789"
    elif change == "missing":
        del tensors[name]
    else:
        tensors[name] = torch.zeros(1, 2, 3, 4)
    write_tensors(path, tensors, metadata)
    with pytest.raises(LNTrustError, match=words):
        make(into="runs")(resume=True)
