"""What a run says of itself and of the machine it was made on."""

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stopped_runs import folder_of

import lntrust
from lntrust.experiment import Run
from lntrust.experiment.store.identity import fingerprint, revision
from lntrust.experiment.store.records import evaluation_file, rounds_table
from lntrust.learners.views import Views


def test_a_run_keeps_them_beside_what_it_is(tiny: Any, views: Views, tmp_path: Path) -> None:
    one = Run(tiny("training.stage2_rounds=0"), "independent", 0, views, folder=tmp_path)
    folder = folder_of(one)
    found = json.loads((folder / "run.json").read_text())
    made_with, made_on = found.pop("versions"), found.pop("hardware")
    assert made_with == revision() | {
        "lntrust": lntrust.__version__, "python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__, "machine": platform.machine(),
    }  # fmt: skip
    assert made_on.pop("cpu")
    assert made_on == {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "gpu": None}
    assert found == one.identity
    assert folder.name == f"seed-0-{fingerprint(one.identity)}", "the machine is not in the name"


def test_rounds_have_a_row_each_and_scores_where_there_are_any() -> None:
    history = [(0.5, 0), (float("nan"), 10), (float("nan"), 20)]
    scores = {"test": 0.7, "self": 0.6, "test_pooled": 0.65, "self_pooled": None}
    table = rounds_table(history, [{"round": 2, **scores}])
    nothing = dict.fromkeys(scores)
    assert table.to_pylist() == [
        {"round": 1, "loss": 0.5, "bytes": 0, **nothing},
        {"round": 2, "loss": None, "bytes": 10, **scores},
        {"round": 3, "loss": None, "bytes": 20, **nothing},
    ]
    assert {str(field.type) for field in table.schema} == {"int64", "double"}, "even where all is missing"


def test_evaluations_sort_as_their_rounds_do() -> None:
    names = [evaluation_file(Path("f"), number).name for number in (2, 10, 100)]
    assert names == sorted(names)
