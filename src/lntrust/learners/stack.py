"""A stack: all nodes of one architecture as one tensor per parameter, [k, …].

The `batched` backend runs the architecture once under `torch.vmap`, for all k nodes. The `loop`
backend runs it k times. Both take the same inputs and the same masks.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from lntrust.errors import LNTrustError
from lntrust.learners import heads
from lntrust.learners.losses import Loss
from lntrust.learners.modules import Dropout, build, with_named_dropout
from lntrust.randomness import dropout_mask, fold, small_seed
from lntrust.settings import LearnerSettings, TrainingSettings

Backend = Literal["batched", "loop"]

# Answers are computed in pieces of about this many input numbers, so that memory stays bounded.
_ANSWERED_AT_ONCE = 16_000_000
# Questions to one model are dealt into blocks of this many examples; the last one is padded.
_BLOCK = 128


class Stack:
    """k nodes with the same torch architecture and the same view."""

    def __init__(
        self,
        learner: LearnerSettings,
        nodes: Int[Tensor, "k"],
        view: Float[Tensor, "N *s"],
        classes: int,
        seed: int,
        backend: Backend,
    ) -> None:
        self.learner = learner
        self.nodes = nodes
        self.view = view
        self.classes = classes
        modules = [self._fresh(seed, node) for node in nodes.tolist()]
        self.params = self._gather([_parameters(module, trained=True) for module in modules])
        self.buffers = self._gather(
            [_parameters(module, trained=False) | dict(module.named_buffers()) for module in modules]
        )
        self._skeleton = with_named_dropout(modules[0])
        self.momentum = {name: torch.zeros_like(p) for name, p in self.params.items()}
        self.is_head = heads.is_head(self._skeleton)
        self.looped_because = self._trial()
        self.looped = backend == "loop" or self.looped_because is not None

    # -- building ---------------------------------------------------------------------------------

    def _fresh(self, seed: int, key: int) -> nn.Module:
        """The module of one node, initialised from its own key, always on the CPU."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(small_seed(seed, "initial weights", key))
            module = build(self.learner, tuple(self.view.shape[1:]), self.classes)
        assert isinstance(module, nn.Module)
        return module

    def _gather(self, tables: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        out = {}
        for name in tables[0]:
            stacked = torch.stack([table[name].detach() for table in tables]).to(self.view.device)
            out[name] = stacked.to(self.view.dtype) if stacked.is_floating_point() else stacked
        return out

    def _trial(self) -> str | None:
        """Run the module once: learn the dropout shapes, and whether it can be stacked at all."""
        field = f"learner {self.learner.name}: kind = {self.learner.kind!r}"
        self._skeleton.to(self.view.device, self.view.dtype).train()
        x = self.view[:2].clone()
        gpu = [self.view.device] if self.view.is_cuda else []
        buffers = {name: b[0].clone() for name, b in self.buffers.items()}
        own = {name: p[0] for name, p in self.params.items()}
        with torch.no_grad(), torch.random.fork_rng(devices=gpu):
            before = _generator_states(gpu)
            try:
                logits = functional_call(self._skeleton, (own, buffers), (x,))
            except (RuntimeError, TypeError, ValueError) as error:
                raise LNTrustError(f"{field} fails on inputs of shape {list(x.shape)}: {error}") from None
            drew = _generator_states(gpu) != before
        if not isinstance(logits, Tensor) or logits.shape != (len(x), self.classes):
            got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise LNTrustError(f"{field} returns {got}: must be logits of shape [B, {self.classes}]")
        if drew:
            raise LNTrustError(
                f"{field} draws random numbers of its own in training: only nn.Dropout is "
                "supported, because its mask can come from a named stream"
            )
        self._dropouts = [
            (name, module.p, module.unit_shape)
            for name, module in self._skeleton.named_modules()
            if isinstance(module, Dropout) and module.unit_shape is not None
        ]
        if any(not torch.equal(b, self.buffers[name][0]) for name, b in buffers.items()):
            return "it changes its buffers in training (batch normalisation?)"
        try:
            with torch.no_grad():
                masks = self._masks(torch.zeros_like(self.nodes[:1]), len(x))
                self._stacked(self._slice(slice(0, 1)), masks, self.view[:2][None].clone(), train=True)
        except RuntimeError as error:
            return f"torch.vmap cannot run it ({str(error).splitlines()[0]})"
        return None

    # -- running ----------------------------------------------------------------------------------

    def _slice(self, which: slice | Int[Tensor, "_"]) -> dict[str, Tensor]:
        return {name: t[which] for name, t in {**self.params, **self.buffers}.items()}

    def _of(self, i: int) -> dict[str, Tensor]:
        """Parameters and buffers of the i-th node of the stack."""
        return {name: t[i] for name, t in self._slice(slice(None)).items()}

    def _one(self, state: dict[str, Tensor], x: Float[Tensor, "B *s"], train: bool) -> Tensor:
        self._skeleton.train(train)
        out: Tensor = functional_call(self._skeleton, state, (x,))
        return out

    def _stacked(
        self, state: dict[str, Tensor], masks: dict[str, Tensor], x: Tensor, train: bool
    ) -> Float[Tensor, "k B C"]:
        if self.is_head:
            return heads.logits(state, x, masks.get(heads.MASK))
        out: Tensor = torch.vmap(lambda s, one: self._one(s, one, train))({**state, **masks}, x)
        return out

    def _masks(self, key: Int[Tensor, "k"], rows: int) -> dict[str, Tensor]:
        return {
            f"{name}.mask": dropout_mask(fold(key, layer), (rows, *unit_shape), p, self.view.dtype)
            for layer, (name, p, unit_shape) in enumerate(self._dropouts)
        }

    def head_inputs(self, examples: Int[Tensor, "k B"], key: Int[Tensor, "k"]) -> Float[Tensor, "k B D"]:
        """The inputs of a linear head under the dropout masks of these keys."""
        x = self.view[examples].flatten(2)
        mask = self._masks(key, examples.shape[1]).get(heads.MASK)
        return x if mask is None else x * mask

    def step(
        self,
        examples: Int[Tensor, "k B"],
        loss: Loss,
        targets: tuple[Tensor, ...],
        key: Int[Tensor, "k"],
        training: TrainingSettings,
        l2: float,
        active: Bool[Tensor, "k"] | None,
    ) -> Float[Tensor, "k"]:
        """One SGD step for every (active) node; returns the losses before it."""
        k = len(self.nodes)
        losses = torch.zeros(k, device=self.view.device, dtype=self.view.dtype)
        together = 1 if self.looped else k
        for piece in (slice(i, i + together) for i in range(0, k, together)):
            turn = None if active is None else active[piece]
            if not self.looped or turn is None or bool(turn.any()):
                part = tuple(t[piece] for t in targets)
                losses[piece] = self._step(piece, examples[piece], loss, part, key[piece], training, l2, turn)
        return losses

    def _step(
        self,
        which: slice,
        examples: Int[Tensor, "k B"],
        loss: Loss,
        targets: tuple[Tensor, ...],
        key: Int[Tensor, "k"],
        training: TrainingSettings,
        l2: float,
        active: Bool[Tensor, "k"] | None,
    ) -> Float[Tensor, "k"]:
        params = {name: p[which].detach().requires_grad_() for name, p in self.params.items()}
        masks = self._masks(key, examples.shape[1])
        x = self.view.index_select(0, examples.flatten()).view(*examples.shape, *self.view.shape[1:])
        buffers = {name: b[which] for name, b in self.buffers.items()}
        if self.looped:
            state = {name: t[0] for name, t in {**params, **buffers, **masks}.items()}
            logits = self._one(state, x[0], train=True)[None]
        else:
            logits = self._stacked({**params, **buffers}, masks, x, train=True)
        losses = loss(logits, *targets)
        if not params:
            return losses  # nothing in it is trained
        gradients = torch.autograd.grad(losses.sum(), list(params.values()), allow_unused=True)
        for (name, p), gradient in zip(params.items(), gradients, strict=True):
            if gradient is not None:  # none: the loss does not depend on it
                self._update(name, which, p.detach(), gradient, training, l2, active)
        return losses.detach()

    def _update(
        self,
        name: str,
        which: slice,
        p: Tensor,
        gradient: Tensor,
        training: TrainingSettings,
        l2: float,
        active: Bool[Tensor, "k"] | None,
    ) -> None:
        """v ← μv + g + l2·θ;  θ ← θ − lr·v."""
        if l2:
            gradient = gradient.add(p, alpha=l2)
        v = self.momentum[name][which]
        new_v = torch.add(gradient, v, alpha=training.momentum)
        if active is not None:
            new_v = torch.where(active.view(-1, *[1] * (p.ndim - 1)), new_v, v)
            gradient = torch.where(active.view(-1, *[1] * (p.ndim - 1)), new_v, torch.zeros_like(v))
        else:
            gradient = new_v
        v.copy_(new_v)
        self.params[name][which].add_(gradient, alpha=-training.lr)

    # -- answering --------------------------------------------------------------------------------

    @torch.no_grad()
    def predict_all(self, examples: Int[Tensor, "U"]) -> Float[Tensor, "k U C"]:
        """p_j(x) of every node of the stack on the same examples."""
        if self.looped:  # each gets inputs of its own: a module may work in place
            each = [self._one(self._of(i), self.view[examples], False) for i in range(len(self.nodes))]
            return torch.stack(each).softmax(-1)
        x = self.view[examples]
        if self.is_head:
            return heads.shared_logits(self._slice(slice(None)), x).softmax(-1)
        call = torch.vmap(lambda s, shared: self._one(s, shared, train=False), in_dims=(0, None))
        size = max(1, _ANSWERED_AT_ONCE // (len(self.nodes) * max(1, self.view[0].numel())))
        logits = [call(self._slice(slice(None)), piece) for piece in torch.split(x, size)]
        return torch.cat(logits, dim=1).softmax(-1)

    @torch.no_grad()
    def predict(self, member: Int[Tensor, "P"], examples: Int[Tensor, "P"]) -> Float[Tensor, "P C"]:
        """p_j(x) for single (member of the stack, example) pairs, sorted by member."""
        if not len(member):
            return torch.empty(0, self.classes, device=self.view.device, dtype=self.view.dtype)
        counts = torch.bincount(member, minlength=len(self.nodes))
        if not self.looped:
            return self._predict_in_blocks(member, examples, counts).softmax(-1)
        logits = [
            self._one(self._of(i), self.view[piece], train=False)
            for i, piece in enumerate(torch.split(examples, counts.tolist()))
            if len(piece)
        ]
        return torch.cat(logits).softmax(-1)

    def _predict_in_blocks(
        self, member: Int[Tensor, "P"], examples: Int[Tensor, "P"], counts: Int[Tensor, "k"]
    ) -> Float[Tensor, "P C"]:
        """Every model's questions in blocks of one size, so that lists of any lengths stack."""
        blocks = (counts + _BLOCK - 1) // _BLOCK
        of_block = torch.repeat_interleave(torch.arange(len(counts), device=member.device), blocks)
        rank = torch.arange(len(member), device=member.device) - (counts.cumsum(0) - counts)[member]
        slot = (blocks.cumsum(0) - blocks)[member] * _BLOCK + rank
        padded = torch.zeros(len(of_block) * _BLOCK, dtype=torch.int64, device=member.device)
        padded[slot] = examples
        per_piece = max(1, _ANSWERED_AT_ONCE // (_BLOCK * max(1, self.view[0].numel())))
        which = torch.split(of_block, per_piece)
        ids = torch.split(padded.view(-1, _BLOCK), per_piece)
        logits = [
            self._stacked(self._slice(w), {}, self.view[i], train=False)
            for w, i in zip(which, ids, strict=True)
        ]
        return torch.cat(logits).flatten(0, 1)[slot]

    # -- keeping ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """All that changes in training."""
        tables = {"param": self.params, "buffer": self.buffers, "momentum": self.momentum}
        return {f"{what}/{name}": t for what, table in tables.items() for name, t in table.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def _parameters(module: nn.Module, trained: bool) -> dict[str, Tensor]:
    """The parameters that take gradient steps, or those that their owner has frozen."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad == trained}


def _generator_states(gpu: list[torch.device]) -> list[bytes]:
    """Of torch's own generators, to see whether somebody drew from them."""
    states = [torch.random.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in gpu)]
    return [state.numpy().tobytes() for state in states]
