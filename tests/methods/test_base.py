"""The shape of a method: its defaults, its verbs in their order, and state that outlives a process."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from stopped_runs import stop

from lntrust.experiment import Run
from lntrust.learners.views import Views
from lntrust.methods import Deployment, Method, Site, State


class Diary(Method):
    """Writes down which verbs it was called by, as a state of every dtype that may occur."""

    heard: list[str]

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.heard = []

    def start(self, site: Site) -> State:
        self.heard.append("start")
        C = site.population.classes
        return {
            "rounds": torch.zeros((), dtype=torch.int64),
            "open": torch.tensor([True, False]),
            "deep/er": torch.full((2, C), 1 / 3, dtype=torch.float64),
            "empty": torch.empty(0, 3),
            "unknown": torch.tensor([float("nan"), float("inf")]),
        }

    def round(self, site: Site, state: State, t: int) -> State:
        self.heard.append(f"round {t}")
        super().round(site, state, t)
        view = state["deep/er"].T  # not contiguous, and memory shared with another entry
        return {**state, "rounds": state["rounds"] + 1, "view": view, "open": ~state["open"]}

    def pseudo_labels(self, site: Site, state: State) -> None:
        self.heard.append("pseudo_labels")

    def finish(self, site: Site, state: State) -> State:
        self.heard.append("finish")
        return {**state, "finished": torch.ones(1)}

    def deploy(self, site: Site, state: State) -> Deployment:
        self.heard.append("deploy")
        return Deployment.alone(site.population)

    def report(self, site: Site, state: State) -> dict[str, Any]:
        return {"rounds": int(state["rounds"]), "open": state["open"].tolist()}

    def tables(self, site: Site, state: State) -> dict[str, dict[str, Any]]:
        return {"diary": {"node": list(range(site.population.n)), "rounds": [int(state["rounds"])] * 5}}


DIARY = f"{__name__}:Diary"


def test_the_verbs_in_their_order_and_what_they_leave(tiny: Any, views: Views, tmp_path: Path) -> None:
    one = Run(tiny(), DIARY, 0, views, folder=tmp_path)
    assert one()["method_report"] == {"rounds": 3, "open": [False, True]}
    (path,) = tmp_path.rglob("diary.parquet")
    assert pq.read_table(path).to_pydict() == {"node": [0, 1, 2, 3, 4], "rounds": [3] * 5}
    assert isinstance(one.method, Diary)
    calls = [call for call in one.method.heard if call != "deploy"]
    assert calls == ["start", "round 1", "round 2", "pseudo_labels", "round 3", "finish"]
    assert one.method.heard[-1] == "deploy"


@pytest.mark.parametrize("number", [2, 4])
def test_state_goes_through_a_checkpoint(tiny: Any, views: Views, tmp_path: Path, number: int) -> None:
    whole, resumed = Run(tiny(), DIARY, 0, views), Run(tiny(), DIARY, 0, views, folder=tmp_path)
    whole()
    stop(Run(tiny(), DIARY, 0, views, folder=tmp_path), number)
    assert resumed(resume=True)["method_report"] == {"rounds": 3, "open": [False, True]}
    torch.testing.assert_close(resumed.state, whole.state, rtol=0, atol=0, equal_nan=True)
