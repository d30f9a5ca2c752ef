"""A run that is stopped at any moment and resumed ends with the same bits as one that is not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from stopped_runs import checkpointed, named, results, stop

from lntrust import LNTrustError, Study
from lntrust.core.files import read_tensors, write_tensors
from lntrust.experiment import Run
from lntrust.learners.views import Views
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
def test_stopped_after_every_round(
    tiny: Any, views: Views, tmp_path: Path, method: str, schedule: str
) -> None:
    more = ("network.query=handle", "partition.validation=fresh", "training.stage2_rounds=4")
    study: Study = tiny(f"training.schedule={schedule}", *more)
    Run(study, method, 0, views, folder=tmp_path / "whole")()
    for number in range(study.training.stage1_rounds + study.training.stage2_rounds + 1):
        one = Run(study, method, 0, views, folder=tmp_path / "stopped")
        stop(one, number, resume=True)
        assert not list((tmp_path / "stopped").rglob("summary.json"))
    Run(study, method, 0, views, folder=tmp_path / "stopped")(resume=True)
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_checkpoints_that_are_behind(tiny: Any, views: Views, tmp_path: Path) -> None:
    """Evaluations of rounds after the last checkpoint are made again."""
    study: Study = tiny("evaluation.checkpoint_every=3", "evaluation.every=1", "training.stage2_rounds=6")
    Run(study, "uniform", 0, views, folder=tmp_path / "whole")()
    stop(Run(study, "uniform", 0, views, folder=tmp_path / "stopped"), 5)
    (checkpoint,) = tmp_path.glob("stopped/**/checkpoint.safetensors")
    assert read_tensors(checkpoint)[1]["round"] == "3"
    for path in checkpoint.parent.glob("evaluations/round-0000[45]*"):
        path.write_bytes(b"to be made again")
    Run(study, "uniform", 0, views, folder=tmp_path / "stopped")(resume=True)
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_without_a_checkpoint_or_without_resume_it_starts_over(
    tiny: Any, views: Views, tmp_path: Path
) -> None:
    first = Run(tiny(), "uniform", 0, views, folder=tmp_path / "whole")()
    Run(tiny(), "uniform", 0, views, folder=tmp_path / "new")(resume=True)
    assert_same(tmp_path / "whole", tmp_path / "new")
    stop(Run(tiny(), "uniform", 0, views, folder=tmp_path / "again"), 4)
    (checkpoint,) = tmp_path.glob("again/**/checkpoint.safetensors")
    checkpoint.write_bytes(b"nonsense")
    Run(tiny(), "uniform", 0, views, folder=tmp_path / "again")()
    assert_same(tmp_path / "whole", tmp_path / "again")
    finished = Run(tiny(), "uniform", 0, views, folder=tmp_path / "whole")
    assert finished(resume=True) == first, "what is finished is not run again"
    assert finished.done == 0


class TestRefusals:
    @pytest.fixture
    def stopped(self, tiny: Any, views: Views, tmp_path: Path) -> Path:
        stop(Run(tiny(), "uniform", 0, views, folder=tmp_path), 4)
        (path,) = tmp_path.rglob("checkpoint.safetensors")
        return path

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ("fingerprint", r"checkpoint.safetensors: belongs to another run \(0123456789"),
            ("missing", r"checkpoint.safetensors: does not fit this run: .*remove it"),  # another version's
            ("shape", r"checkpoint.safetensors: does not fit this run: .*remove it"),
            ("evaluation", r"round-00002\.safetensors"),
        ],
    )
    def test_what_does_not_belong_to_a_run(
        self, tiny: Any, views: Views, tmp_path: Path, stopped: Path, change: str, words: str
    ) -> None:
        tensors, metadata = read_tensors(stopped)
        name = next(name for name in tensors if name.startswith("population/linear/param/"))
        if change == "fingerprint":
            metadata["fingerprint"] = "0123456789"
        elif change == "missing":
            del tensors[name]
        elif change == "shape":
            tensors[name] = torch.zeros(1, 2, 3, 4)
        else:
            (stopped.parent / "evaluations" / "round-00002.safetensors").unlink()
        write_tensors(stopped, tensors, metadata)
        with pytest.raises(LNTrustError, match=words):
            Run(tiny(), "uniform", 0, views, folder=tmp_path)(resume=True)
