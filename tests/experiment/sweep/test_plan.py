"""A sweep's tasks: which there are, what crosses to a worker, and what they leave."""

import json
from pathlib import Path
from typing import Any

import pytest
from stopped_runs import Stopped, list_attempts, stop_after, timeless

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.experiment.driver import Runs
from lntrust.experiment.sweep.attempts import carry_out
from lntrust.experiment.sweep.plan import Answer, Task, axes, datasets_of, plan
from lntrust.learners.views import Views


def settings(tasks: list[Task], method: str) -> list[dict[str, str]]:
    return [task.setting for task in tasks if task.method == method]


class TestGrid:
    def test_values_are_toml_or_bare_words(self) -> None:
        assert axes(["a.b=1,2.5", " c = ring , \"x,y\",[1, 2],{d = 1, e = ','}", "f=none"]) == {
            "a.b": ["1", "2.5"],
            "c": ["ring", '"x,y"', "[1, 2]", "{d = 1, e = ','}"],
            "f": ["none"],
        }

    @pytest.mark.parametrize(
        ("grid", "message"),
        [
            ("training.lr", "must look like path.to.field=value,value,…"),
            ("=1,2", "must look like"),
            ("training.lr=", "a value is empty"),
            ("training.lr=0.1,,0.2", "a value is empty"),
            ("population.learners=[1,2", "brackets or quotes do not close"),
            ("training.lr=0.1,0.1", "can be given once"),
            ("partition.skew=1", "can be given once"),  # a second time
        ],
    )
    def test_what_cannot_be_read(self, grid: str, message: str) -> None:
        with pytest.raises(LNTrustError, match=f"--grid {grid.split('[')[0]}.*{message}"):
            axes(["partition.skew=2", grid])

    @pytest.mark.parametrize(
        ("grid", "message"),
        [
            ("partition.skw=1,2", "unknown field partition.skw; did you mean skew"),
            ("partition.skew=10,0.5", "partition.skew = 0.5"),
            (
                "methods.lntrust.strenght=1,2",
                "methods.lntrust: unknown field strenght; did you mean strength?",
            ),
            ("methods.lntrust.lr=0.1,-1", "methods.lntrust: lr = -1"),
            ("methods.lntrst.lr=0.1,1", "methods.lntrst: .*did you mean lntrust"),
            ("methods.dml.lr=0.1,0.2", "makes no difference to uniform, lntrust"),
            ("seeds=[1],[2]", "makes no difference to uniform, lntrust"),
        ],
    )
    def test_a_bad_path_or_value_is_refused_before_any_work(
        self, tiny_file: Path, grid: str, message: str
    ) -> None:
        with pytest.raises(LNTrustError, match=message):
            plan(str(tiny_file), [], [grid], ["uniform", "lntrust"], [0], "cpu")


class TestPlan:
    def test_every_method_seed_and_setting_is_a_task_on_a_cpu(self, tiny_file: Path) -> None:
        grids = ["partition.skew=10,20", "training.lr=0.1,0.2,0.3"]
        tasks = plan(str(tiny_file), ["graph.nodes=4"], grids, ["uniform", "dml", "uniform"], [3, 1], "cpu")
        assert len(tasks) == 2 * 6 * 2
        asked = {(m, s) for m in ("uniform", "dml") for s in (3, 1)}
        assert {(task.method, *task.seeds) for task in tasks} == asked
        pairs = {(task.study.partition.skew, task.study.training.lr) for task in tasks}
        assert pairs == {(skew, lr) for skew in (10, 20) for lr in (0.1, 0.2, 0.3)}
        assert all(task.study.graph.nodes == 4 for task in tasks)
        assert tasks[0].setting == {"partition.skew": "10", "training.lr": "0.1"}
        assert len({folder for task in tasks for folder in task.folders}) == len(tasks)

    def test_on_a_gpu_the_seeds_of_a_method_and_setting_are_one_task(self, tiny_file: Path) -> None:
        tasks = plan(str(tiny_file), [], ["training.lr=0.1,0.2"], ["uniform", "dml"], [2, 0, 1], "cuda")
        assert [(t.method, t.study.training.lr, t.seeds) for t in tasks] == [
            (m, lr, [0, 1, 2]) for m in ("uniform", "dml") for lr in (0.1, 0.2)
        ]
        assert all(len(set(task.folders)) == 3 for task in tasks)

    def test_a_method_is_run_once_for_settings_that_are_not_its_own(self, tiny_file: Path) -> None:
        grids = ["methods.lntrust.strength=0.1,0.2", "training.lr=0.1,0.2"]
        tasks = plan(str(tiny_file), [], grids, ["uniform", "lntrust"], [0], "cpu")
        assert settings(tasks, "uniform") == [{"training.lr": lr} for lr in ("0.1", "0.2")]
        assert len(settings(tasks, "lntrust")) == 4

        # With deploy = trust a setting of lntrust decides how uniform is deployed.
        grids = ["methods.lntrust.budget=20,40"]
        assert len(plan(str(tiny_file), ["deploy=trust"], grids, ["uniform"], [0], "cpu")) == 2

    def test_without_a_grid_it_is_the_study_as_it_stands(self, tiny_file: Path) -> None:
        tasks = plan(str(tiny_file), ["seeds=[4,5]", 'compare=["dml"]'], [], [], [], "cpu")
        assert [(t.method, t.seeds, t.setting) for t in tasks] == [("dml", [4], {}), ("dml", [5], {})]

    def test_a_view_that_does_not_exist_is_found_before_any_task(self, tiny_file: Path) -> None:
        tasks = plan(str(tiny_file), [], ["population.learners.0.view=pixels,pixls"], ["uniform"], [0], "cpu")
        with pytest.raises(LNTrustError, match="'pixls': digits has no such view"):
            datasets_of(tasks, None)


class TestTask:
    @pytest.mark.parametrize("seeds", [[0], [0, 2]])
    @pytest.mark.parametrize("sets", [["methods.uniform.lr=1e-7"], ["deploy=trust"]])
    def test_it_crosses_as_json_and_its_folders_are_those_of_the_runs(
        self, tiny: Any, views: Views, tmp_path: Path, seeds: list[int], sets: list[str]
    ) -> None:
        task = Task(study=tiny(*sets), method="uniform", seeds=seeds, device="cpu", setting={})
        there = Task.model_validate_json(task.model_dump_json())
        assert there == task
        runs = Runs(task.study, "uniform", seeds, views, folder=tmp_path)
        assert [tmp_path / folder for folder in there.on(views.dataset).folders] == runs.folders

    @pytest.mark.parametrize("seeds", [[0], [0, 2]])
    def test_a_task_that_is_stopped_goes_on_from_its_checkpoint(
        self, tiny: Any, views: Views, tmp_path: Path, seeds: list[int]
    ) -> None:
        task = Task(study=tiny(), method="uniform", seeds=seeds, device="cpu", setting={}).on(views.dataset)
        assert task.finished(tmp_path) is None
        with pytest.raises(Stopped):
            carry_out(task, views, tmp_path / "stopped", progress=stop_after(3))
        seen: list[int] = []
        got = carry_out(task, views, tmp_path / "stopped", progress=lambda done, *_: seen.append(done))
        assert seen[0] == 3
        whole = carry_out(task, views, tmp_path / "whole")
        assert [*map(timeless, got)] == [*map(timeless, whole)]
        assert [s["seed"] for s in got] == seeds
        text = Answer(summaries=got).model_dump_json()
        assert json.dumps(Answer.model_validate_json(text).summaries) == json.dumps(got), "to the last bit"
        for folder in task.folders:
            tried = list_attempts(tmp_path / "stopped" / folder)
            assert [(a["number"], a["resumed"]) for a in tried] == [(1, 0), (2, 3)]
        again = carry_out(task, views, tmp_path / "stopped", progress=lambda *_: pytest.fail("it is done"))
        assert again == got == task.finished(tmp_path / "stopped")
        assert all(len(list_attempts(tmp_path / "stopped" / folder)) == 2 for folder in task.folders)

    def test_a_stack_leaves_out_the_seeds_that_are_done(
        self, tiny: Any, views: Views, tmp_path: Path
    ) -> None:
        first = Run(tiny(), "uniform", 0, views, folder=tmp_path)()
        task = Task(study=tiny(), method="uniform", seeds=[0, 1, 2], device="cpu", setting={})
        got = carry_out(task, views, tmp_path)
        assert got[0] == first
        assert [s["stacked"] for s in got] == [1, 2, 2]

    def test_a_stack_that_stopped_between_two_summaries_is_not_trained_again(
        self, tiny: Any, views: Views, tmp_path: Path
    ) -> None:
        task = Task(study=tiny(), method="uniform", seeds=[0, 1], device="cpu", setting={}).on(views.dataset)
        with pytest.raises(Stopped):
            carry_out(task, views, tmp_path / "stopped", progress=stop_after(5))
        whole = carry_out(task, views, tmp_path / "whole")
        text = json.dumps(whole[0])  # as if the first summary had been written, and then the light went out
        (tmp_path / "stopped" / task.folders[0] / "summary.json").write_text(text)
        seen: list[int] = []
        got = carry_out(task, views, tmp_path / "stopped", progress=lambda done, *_: seen.append(done))
        assert set(seen) == {5}
        assert [*map(timeless, got)] == [*map(timeless, whole)]
