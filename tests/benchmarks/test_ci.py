"""Ratios of speed against the committed ones; whether something became slow, `bench ci` tells."""

import json
from pathlib import Path

import pytest

from benchmarks.speed import ci
from lntrust import LNTrustError

COMMITTED = Path(__file__).parents[2] / "benchmarks" / "ci_baseline.json"


def test_what_is_committed_is_what_is_measured() -> None:
    ratios = ci.measure()
    assert set(ratios) == set(ci.read_baseline(COMMITTED))
    assert min(ratios.values()) > 0


def test_a_factor_of_two_fails_and_less_does_not() -> None:
    committed = {"run": 3.0, "loop": 0.1}
    assert ci.worse({"run": 3.0 * 1.9, "loop": 0.19}, committed) == []
    (problem,) = ci.worse({"run": 3.0 * 2, "loop": 0.1}, committed)
    assert problem == "run: 6, and 3 is committed; 2.00 times as much"
    assert len(ci.worse({"run": 7.0, "loop": 0.3}, committed)) == 2
    assert ci.worse({"run": 0.1, "loop": 0.01}, committed) == []


def test_a_ratio_that_is_no_longer_measured_fails() -> None:
    assert ci.worse({"run": 1.0}, {"run": 1.0, "gone": 1.0}) == ["gone: is committed, and was not measured"]
    assert ci.worse({"run": 1.0, "new": 9.0}, {"run": 1.0}) == []


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    ci.write_baseline(path, {"run": 1.23456}, {"cpu": "a"})
    assert ci.read_baseline(path) == {"run": 1.2346}
    assert set(json.loads(path.read_text())) == {"ratios", "hardware", "versions"}


@pytest.mark.parametrize(
    "text", ["[]", '{"ratios": []}', '{"ratios": {"run": 0}}', '{"ratios": {"run": "1"}}']
)
def test_a_file_of_another_kind(tmp_path: Path, text: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(LNTrustError, match="must hold `ratios`"):
        ci.read_baseline(path)
