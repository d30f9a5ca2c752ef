"""Ratios of speed against the committed ones; whether something became slow, `bench ci` tells."""

from pathlib import Path

import pytest

from benchmarks.speed import ci
from lntrust import LNTrustError, Study
from lntrust.learners.views import Views

COMMITTED = Path(__file__).parents[2] / "benchmarks" / "ci_baseline.json"


def test_what_is_committed_is_what_is_measured(
    heads: Study, codes: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ci, "_TRIES", 1)
    ratios = ci.measure(heads, codes)  # of another study: numbers are of no account here
    assert set(ratios) == set(ci.read_baseline(COMMITTED))
    assert min(ratios.values()) > 0
    assert ci.small_study().graph.nodes == 30


@pytest.mark.parametrize(
    ("measured", "problems"),
    [
        ({"run": 5.7, "loop": 0.19}, []),
        ({"run": 0.1, "loop": 0.01, "new": 9.0}, []),
        ({"run": 6.0, "loop": 0.1}, ["run: 6, and 3 is committed; 2.00 times as much"]),
        ({"run": 1.0}, ["loop: is committed, and was not measured"]),
    ],
)
def test_a_factor_of_two_fails_and_less_does_not(measured: dict[str, float], problems: list[str]) -> None:
    assert ci.worse(measured, {"run": 3.0, "loop": 0.1}) == problems


@pytest.mark.parametrize("text", ["[]", '{"ratios": []}', '{"ratios": {"run": 0}}'])
def test_a_file_of_another_kind(tmp_path: Path, text: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(LNTrustError, match="must hold `ratios`"):
        ci.read_baseline(path)
