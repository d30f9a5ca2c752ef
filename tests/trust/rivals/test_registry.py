"""Every weighting by name: rows on the simplex, and the same for all nodes at once as for one alone."""

import pytest
from random_evidence import evidence
from rivals import assert_on_the_simplex, assert_one_at_a_time

from lntrust.trust.rivals import WEIGHTINGS, Weighting, make_weighting


def test_the_rivals() -> None:
    assert set(WEIGHTINGS) == {
        "trust", "simplex_erm", "hedge", "weighted_majority", "linucb", "uniform", "best_single", "fedfomo",
    }  # fmt: skip
    for name, kind in WEIGHTINGS.items():
        assert isinstance(make_weighting(name, 3), kind)
        assert make_weighting(name, 3).seed == 3
        assert kind.about


@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_on_the_simplex(name: str, seed: int) -> None:
    assert_on_the_simplex(make_weighting(name, seed), evidence(seed), evidence(seed + 10))


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_without_an_unlabelled_pool(name: str) -> None:
    assert_on_the_simplex(make_weighting(name, 0), evidence(0, pool=False))


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_one_member_alone(name: str) -> None:
    assert_on_the_simplex(make_weighting(name, 0), evidence(0, D=2, n=1))


@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.parametrize("seed", [0, 1])
def test_all_at_once_equals_one_at_a_time(name: str, seed: int) -> None:
    assert_one_at_a_time(make_weighting(name, seed), evidence(seed), evidence(seed + 20))


def test_the_base_must_be_filled_in() -> None:
    e = evidence(0)
    with pytest.raises(NotImplementedError):
        Weighting().weights({}, e, e.mask)
