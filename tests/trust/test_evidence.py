"""What one refresh has shown, whole and node by node."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_evidence import evidence

from lntrust.trust.features import probe_response


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_a_node_s_part_is_its_rows(seed: int) -> None:
    whole = evidence(seed)
    for i in range(len(whole.mask)):
        part = whole.at(slice(i, i + 1))
        rows = slice(int(whole.offsets[i]), int(whole.offsets[i + 1]))
        assert part.offsets.tolist() == [0, rows.stop - rows.start]
        assert torch.equal(part.labels, whole.labels[rows])
        assert torch.equal(part.probabilities, whole.probabilities[rows])
        assert torch.equal(part.p_true, whole.p_true[rows])
        for name in ("mask", "rho", "phi", "w", "accuracy", "open"):
            assert torch.equal(getattr(part, name)[0], getattr(whole, name)[i]), name
        again = probe_response(part.probabilities, part.labels, part.offsets) * part.mask[..., None]
        assert torch.equal(again, part.rho)


def test_open_leaves_out_the_node_itself_and_changes_nothing() -> None:
    e = evidence(0)
    before = e.mask.clone()
    assert not e.open[:, 0].any()
    assert torch.equal(e.open[:, 1:], e.mask[:, 1:])
    assert torch.equal(e.mask, before)


def test_a_run_keeps_only_what_members_gave_to_true_classes() -> None:
    e = evidence(3)
    kept = e.of_true_classes()
    assert kept.probabilities.shape == (*e.p_true.shape, 1)
    assert torch.equal(kept.p_true, e.p_true)
    rows = zip(e.probabilities, e.labels, strict=True)
    assert torch.equal(kept.p_true, torch.stack([p[:, y] for p, y in rows]))
    assert torch.equal(kept.accuracy, e.accuracy)
