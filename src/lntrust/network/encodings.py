"""How predictions travel: all of them as floats, in 8 bits each, or the likeliest few classes.

    float32   C numbers
    uint8     C bytes: p scaled so that the likeliest class is 255
    topK      the K likeliest classes, a byte each for the class (two above 256 classes) and for p; what is
              left of the probability is spread evenly over the others

What is heard is what was encoded, made whole again: rows sum to 1, and no class overtakes a likelier one,
though two may end up level.
"""

import re
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.network.codec import Spec

ENCODINGS = r"^(float32|uint8|top[1-9]\d{0,3})$"
_FULL = 255


@dataclass(frozen=True)
class ReplyEncoding:
    """A way to write C probabilities."""

    name: str = "float32"

    def __post_init__(self) -> None:
        if not re.fullmatch(ENCODINGS, self.name):
            raise LNTrustError(f"reply = {self.name!r}: must be float32, uint8, or top1, top2, …")

    @property
    def exact(self) -> bool:
        return self.name == "float32"

    def _few(self, C: int) -> int | None:
        """K of topK; never more than there are classes."""
        return min(int(self.name[3:]), C) if self.name.startswith("top") else None

    def specs(self, examples: int, C: int) -> dict[str, Spec]:
        """Names, shapes and dtypes of the tensors that travel."""
        few = self._few(C)
        if self.exact:
            return {"probabilities": ((examples, C), "float32")}
        if few is None:
            return {"codes": ((examples, C), "uint8")}
        return {"classes": ((examples, few), _index(C)), "codes": ((examples, few), "uint8")}

    def encode(self, p: Float[Tensor, "*s C"]) -> dict[str, Tensor]:
        """The tensors that travel, for rows that are probabilities."""
        C = p.shape[-1]
        few = self._few(C)
        if self.exact:
            return {"probabilities": p.float()}
        if few is None:
            scaled = p / p.amax(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
            return {"codes": (scaled * _FULL).round().to(torch.uint8)}
        likeliest, classes = p.topk(few, dim=-1)
        # Rounded up: what is spread over the others then never exceeds the least that is told.
        codes = (likeliest * _FULL).ceil().clamp(max=_FULL).to(torch.uint8)
        return {"classes": classes.to(getattr(torch, _index(C))), "codes": codes}

    def decode(self, tensors: dict[str, Tensor], C: int) -> Float[Tensor, "*s C"]:
        """Probabilities again."""
        if self.exact:
            return tensors["probabilities"]
        codes = tensors["codes"].float() / _FULL
        if "classes" not in tensors:
            return codes / codes.sum(-1, keepdim=True).clamp(min=1.0 / _FULL)
        left = (1.0 - codes.sum(-1, keepdim=True)).clamp(min=0.0) / max(1, C - codes.shape[-1])
        p = left.expand(*codes.shape[:-1], C).scatter(-1, tensors["classes"].long(), codes)
        return p / p.sum(-1, keepdim=True).clamp(min=1.0 / _FULL)

    def heard(self, p: Float[Tensor, "*s C"]) -> Float[Tensor, "*s C"]:
        """What arrives of these predictions; rows of 0 (nothing was said) stay."""
        if self.exact:
            return p
        said = (p.sum(-1, keepdim=True) > 0).to(p.dtype)
        return self.decode(self.encode(p), p.shape[-1]).to(p.dtype) * said


def _index(C: int) -> str:
    return "uint8" if C <= _FULL + 1 else "int16"
