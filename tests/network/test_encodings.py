"""How replies travel: their exact sizes, and what is heard of the probabilities that were said."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.network import Message, ReplyEncoding, encode, size

STEP = 1 / 255
ROUNDING = 1e-6  # of float32
NAMES = ("float32", "uint8", "top1", "top2", "top3", "top7", "top9999")
encodings = st.sampled_from([ReplyEncoding(name) for name in NAMES])
coarse = st.sampled_from([ReplyEncoding(name) for name in NAMES[1:]])


@st.composite
def rows(draw: st.DrawFn, most: int = 12) -> Tensor:
    """Rows that are probabilities: from nearly even to nearly certain, with ties and zeros."""
    m, C = draw(st.integers(1, 6)), draw(st.integers(2, most))
    g = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    p = (draw(st.sampled_from([0.1, 1.0, 5.0, 50.0])) * torch.randn(m, C, generator=g)).softmax(-1)
    if draw(st.booleans()):  # as a forest of eight trees answers
        votes = torch.multinomial(p, 8, replacement=True, generator=g)
        p = torch.zeros_like(p).scatter_add(1, votes, torch.full(votes.shape, 1 / 8))
    return p


def order_is_kept(said: Tensor, heard: Tensor) -> bool:
    """No class that was less likely is heard as likelier; below float32's normal numbers all are level."""
    said = said.clamp(min=torch.finfo(torch.float32).tiny)
    less = said[:, :, None] < said[:, None, :]
    overtaken = heard[:, :, None] > heard[:, None, :]
    return not bool((less & overtaken).any())


class TestSizes:
    @given(encodings, st.integers(0, 40), st.integers(1, 400))
    def test_booked_is_what_travels(self, encoding: ReplyEncoding, m: int, C: int) -> None:
        tensors = encoding.encode(torch.full((m, C), 1.0 / C))
        message = Message("reply", {name: t.numpy() for name, t in tensors.items()}, round=3, version=1)
        assert len(encode(message)) == size(encoding.specs(m, C)).total

    @pytest.mark.parametrize(
        ("name", "bytes_each"), [("float32", 40), ("uint8", 10), ("top3", 6), ("top12", 20)]
    )
    def test_bytes_for_ten_classes(self, name: str, bytes_each: int) -> None:
        assert size(ReplyEncoding(name).specs(7, 10)).payload == 7 * bytes_each

    @pytest.mark.parametrize(("C", "width"), [(256, 1), (257, 2), (400, 2)])
    def test_many_classes_have_wider_numbers(self, C: int, width: int) -> None:
        assert size(ReplyEncoding("top3").specs(1, C)).payload == 3 * width + 3
        certain = torch.zeros(2, C)
        certain[:, -1] = 1.0  # the class of the greatest number
        assert ReplyEncoding("top3").heard(certain).argmax(-1).tolist() == [C - 1] * 2


class TestHeard:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @given(encoding=encodings, p=rows())
    def test_rows_are_probabilities_and_no_class_overtakes(
        self, dtype: torch.dtype, encoding: ReplyEncoding, p: Tensor
    ) -> None:
        p = p.to(dtype)
        heard = encoding.heard(p)
        assert (heard.shape, heard.dtype) == (p.shape, p.dtype)
        assert (heard >= 0).all()
        assert ((heard.sum(-1) - 1).abs() < ROUNDING).all()
        assert order_is_kept(p, heard)
        assert torch.equal(heard, encoding.decode(encoding.encode(p), p.shape[1]).to(dtype)) or encoding.exact
        together = encoding.heard(p.expand(2, *p.shape))  # the same in any company
        assert torch.equal(together[1], heard)
        assert torch.equal(together[0, -1:], encoding.heard(p[-1:]))
        p[0] = 0.0  # who said nothing stays silent
        heard = encoding.heard(p)
        assert (heard[0] == 0).all()
        assert ((heard[1:].sum(-1) - 1).abs() < ROUNDING).all()

    @given(rows())
    def test_in_eight_bits(self, p: Tensor) -> None:
        """Scaled by the likeliest class: each is off by half a step, and what all are off is shared."""
        half = p.amax(-1, keepdim=True) * STEP / 2
        together = p.shape[1] * half
        error = (ReplyEncoding("uint8").heard(p) - p).abs()
        assert (error * (1 - together) <= half + p * together + ROUNDING).all()

    @given(rows())
    def test_all_classes_told(self, p: Tensor) -> None:
        C = p.shape[1]
        error = ReplyEncoding(f"top{C}").heard(p) - p
        assert (error <= STEP + ROUNDING).all()
        assert (error >= -p * C * STEP - ROUNDING).all()

    @given(rows(), st.integers(1, 5))
    def test_a_few_classes_told(self, p: Tensor, k: int) -> None:
        """Those told are off by what rounding up k of them makes; the others share what is left evenly."""
        heard, few = ReplyEncoding(f"top{k}").heard(p), min(k, p.shape[1])
        told = torch.zeros_like(p, dtype=torch.bool).scatter(1, p.topk(few, dim=1).indices, True)
        error = (heard - p)[told]
        assert (error <= STEP + ROUNDING).all()
        assert (error >= -few * STEP - ROUNDING).all()
        for row, known in zip(heard, told, strict=True):
            others = row[~known]
            if len(others):
                torch.testing.assert_close(others, others[:1].expand_as(others))


class TestNames:
    @pytest.mark.parametrize("name", ["float16", "top0", "top", "top-1", "top12345", "Top3", "", "uint8 "])
    def test_others_are_refused(self, name: str) -> None:
        with pytest.raises(LNTrustError, match=r"reply = .*: must be float32, uint8, or top1, top2"):
            ReplyEncoding(name)
        with pytest.raises(ValidationError, match="reply"):
            LNTrustSettings(reply=name)

    def test_no_more_classes_than_there_are(self) -> None:
        p = torch.tensor([[0.5, 0.25, 0.25]])
        assert torch.equal(ReplyEncoding("top9").heard(p), ReplyEncoding("top3").heard(p))
        assert np.prod(ReplyEncoding("top9").specs(1, 3)["codes"][0]) == 3
