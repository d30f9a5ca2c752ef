"""Lists of different lengths in two flat arrays."""

import numpy as np
import pytest

from lntrust.world import Ragged

LISTS = [[4, 2], [], [7, 7, 1]]
RAGGED = Ragged.of([np.array(one, dtype=np.int64) for one in LISTS])


def test_what_goes_in_comes_out() -> None:
    assert [one.tolist() for one in RAGGED] == LISTS
    assert [RAGGED[i].tolist() for i in range(3)] == LISTS
    assert len(RAGGED) == 3
    assert RAGGED.lengths.tolist() == [2, 0, 3]
    assert RAGGED.offsets.tolist() == [0, 2, 2, 5]
    assert RAGGED.owner.tolist() == [0, 0, 2, 2, 2]
    assert RAGGED.values.dtype == RAGGED.offsets.dtype == np.int64


def test_joined() -> None:
    other = Ragged.of([np.array([9]), np.array([8, 6]), np.array([])])
    assert [one.tolist() for one in RAGGED.joined(other)] == [[4, 2, 9], [8, 6], [7, 7, 1]]
    assert [one.tolist() for one in RAGGED] == LISTS
    with pytest.raises(ValueError, match="zip"):
        RAGGED.joined(Ragged.of([np.array([1])]))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_nothing_inside(n: int) -> None:
    for ragged in (Ragged.of([np.array([])] * n), Ragged.empty(n)):
        assert len(ragged) == n
        assert ragged.values.dtype == ragged.owner.dtype == np.int64
        assert ragged.lengths.tolist() == [0] * n
