"""`lntrust sweep` as its users see it."""

import json
import re
from pathlib import Path
from typing import Any


def test_a_row_for_every_method_and_setting_and_then_the_same_as_json(
    lntrust: Any, quick_file: Path, here: Path
) -> None:
    arguments = ["sweep", "quick.toml", "--method", "independent,uniform", "--seed", "0-1", "--device", "cpu"]
    arguments += ["--grid", "methods.uniform.lr=0.02,0.2", "--workers", "2", "--out", here / "out[put]"]
    got = lntrust(*arguments)
    assert got.code == 0
    assert "quick, seeds 0, 1" in got.out
    assert re.findall(r"^ *(independent|uniform|lr=\S+)", got.out, re.M) == [
        "independent", "uniform", "lr=0.02", "uniform", "lr=0.2",
    ]  # fmt: skip
    assert len(re.findall(r"^uniform .*?( +\d+ %){3} ", got.out, re.M)) == 2, (
        "Independent feels no setting of theirs"
    )
    assert f"Run folders: {here / 'out[put]' / 'quick'}\n" in got.out
    said = got.err.splitlines()
    assert len(said) == 6
    ended = r": test 0\.\d{3}; \d/6 tasks, \S+ a minute, 0:\d\d:\d\d left$"
    assert all(re.search(ended, line) for line in said)
    again = lntrust(*arguments, "--json")
    assert again.err == "kept 6; --fresh makes them anew\n"
    lines = [json.loads(line) for line in again.out.splitlines()]
    assert [(line["method"], line["setting"], line["seed"]) for line in lines] == [
        ("independent", {}, 0), ("independent", {}, 1),
        *(("uniform", {"methods.uniform.lr": lr}, s) for lr in (0.02, 0.2) for s in (0, 1)),
    ]  # fmt: skip
    for line in lines:
        folder = Path(line.pop("folder"))
        assert folder.is_relative_to(here / "out[put]" / "quick")
        line.pop("setting")
        assert json.loads((folder / "summary.json").read_text()) == line
    rates = [json.loads(p.read_text())["settings"]["lr"] for p in here.rglob("uniform/*/run.json")]
    assert sorted(rates) == [0.02, 0.02, 0.2, 0.2]
