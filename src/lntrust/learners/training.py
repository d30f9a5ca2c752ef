"""A stack: models of one architecture that learn together, one SGD step of every node at a time."""

from collections.abc import Callable
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lntrust.core.cuda_graphs import CudaGraph
from lntrust.core.losses import Loss
from lntrust.core.randomness import dropout_mask, fold
from lntrust.core.threads import scratch, side_by_side
from lntrust.learners import linear as heads
from lntrust.learners.inference import Models


class Stack(Models):
    """Nodes with the same torch architecture; they learn, share and are kept."""

    @cached_property
    def step(self) -> Callable[..., Float[Tensor, "k"]]:
        """One SGD step for every (active) node, as `_step` has it; that of heads is replayed on a GPU."""
        return CudaGraph(self._step) if self.is_head and not self.looped else self._step

    def head_inputs(self, examples: Int[Tensor, "k B"], key: Int[Tensor, "k"]) -> Float[Tensor, "k B D"]:
        """The inputs of a linear head under the dropout masks of these keys."""
        x = self._inputs(examples).flatten(2)
        mask = self._masks(key, examples.shape[1]).get(heads.MASK)
        return x if mask is None else x * mask

    def _step(
        self,
        examples: Int[Tensor, "k B"],
        key: Int[Tensor, "k"],
        active: Bool[Tensor, "k"] | None,
        inputs: Float[Tensor, "k A *s"] | None,
        *targets: Tensor,
        loss: Loss,
        lr: float,
        momentum: float,
        l2: float,
        embed: bool,
    ) -> Float[Tensor, "k"]:
        """The losses before the step: v ← μv + g + l2·θ;  θ ← θ − lr·v.

        `inputs` are appended to the examples. With `embed`, the loss is also given the representations.
        """
        losses = torch.zeros(len(self.nodes), device=self.view.device, dtype=self.view.dtype)

        def learn(which: slice) -> None:
            turn = None if active is None else active[which]
            if self.looped and turn is not None and not bool(turn.any()):
                return
            x = self._inputs(examples[which], own=self.is_head and not self.looped)
            if inputs is not None:
                x = torch.cat([x, inputs[which]], 1)
            gradients, losses[which] = self._gradients(
                which, x, loss, tuple(t[which] for t in targets), key[which], embed
            )
            for name, gradient in gradients.items():
                p, v = self.params[name][which], self.momentum[name][which]
                if l2:
                    gradient = gradient.add(p, alpha=l2)
                new = torch.add(gradient, v, alpha=momentum)
                if turn is None:
                    p.sub_(new, alpha=lr)
                else:
                    theirs = turn.view(-1, *[1] * (p.ndim - 1))
                    new = torch.where(theirs, new, v)
                    p.sub_(torch.where(theirs, new, 0.0), alpha=lr)
                v.copy_(new)

        pieces = self._pieces(examples.shape[1] + (0 if inputs is None else inputs.shape[1]))
        if self.is_head and not self.looped and not self.view.is_cuda:
            side_by_side(learn, pieces)
        else:
            for which in pieces:
                learn(which)
        return losses

    def _gradients(
        self,
        which: slice,
        x: Float[Tensor, "k B *s"],
        loss: Loss,
        targets: tuple[Tensor, ...],
        key: Int[Tensor, "k"],
        embed: bool,
    ) -> tuple[dict[str, Tensor], Float[Tensor, "k"]]:
        """∇ of the loss for every parameter it depends on, and the losses."""
        if self.is_head and not self.looped:
            mask, rows = None, (x.shape[1], x[0, 0].numel())
            for _, p, _ in self._dropouts:
                out = scratch("mask", x, len(x), *rows)
                mask = dropout_mask(fold(key, 0), rows, p, x.dtype, out)
            beside = (None,) if embed else ()
            return heads.gradients(self._slice(which), x, mask, loss, (*targets, *beside))
        params = {name: p[which].detach().requires_grad_() for name, p in self.params.items()}
        buffers = {name: b[which] for name, b in self.buffers.items()}
        state = {**params, **buffers, **self._masks(key, x.shape[1])}
        embedding: Tensor | None = None
        if not embed or self._last is None:
            logits = self._run(state, x, train=True)
        elif self.looped:  # there is one node in it
            one = self._embedded({name: t[0] for name, t in state.items()}, x[0])
            logits, embedding = one[0][None], one[1][None]
        else:
            logits, embedding = torch.vmap(self._embedded)(state, x)
        losses = loss(logits, *targets, embedding) if embed else loss(logits, *targets)
        if not params:
            return {}, losses  # nothing in it is trained
        gradients = torch.autograd.grad(losses.sum(), list(params.values()), allow_unused=True)
        found = {name: g for name, g in zip(params, gradients, strict=True) if g is not None}
        return found, losses.detach()

    def flat(self) -> Float[Tensor, "k P"]:
        """All trained parameters of every node, one after another."""
        return torch.cat([p.flatten(1) for p in self.params.values()], 1)

    def unflat(self, rows: Float[Tensor, "k P"]) -> dict[str, Tensor]:
        """The same by name again."""
        parts = torch.split(rows, [p[0].numel() for p in self.params.values()], 1)
        return {name: part.view(p.shape) for (name, p), part in zip(self.params.items(), parts, strict=True)}

    def state(self) -> dict[str, Tensor]:
        tables = {"param": self.params, "buffer": self.buffers, "momentum": self.momentum}
        return {f"{what}/{name}": t for what, table in tables.items() for name, t in table.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
