"""Models of one architecture: all nodes' as one tensor per parameter, [k, …], built, run and asked.

The `batched` backend runs the architecture once under `torch.vmap`, for all k nodes. The `loop`
backend runs it k times. Both take the same inputs and the same masks.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from lntrust.core.errors import LNTrustError
from lntrust.core.losses import softmax
from lntrust.core.randomness import dropout_mask, fold
from lntrust.core.threads import scratch
from lntrust.learners import linear as heads
from lntrust.learners.modules import Dropout, Members, with_named_dropout

Backend = Literal["batched", "loop"]

# Heads learn in pieces of about so many input numbers: on a CPU those of a node or two, which stay in its
# cache; on a GPU as many as keep it busy. Fewer are not worth a piece.
_WORTH_A_PIECE = 400_000
_LEARNT_AT_ONCE = {"cpu": 2_600_000, "cuda": 64_000_000}


@dataclass(eq=False, repr=False)
class Models(Members):
    """Nodes with the same torch architecture."""

    backend: Backend = "batched"
    common_start: bool = False

    at_once = 16_000_000  # input numbers in a piece of answers, so that memory stays bounded
    block = 128  # examples in a block of questions to one model; the last one is padded

    def __post_init__(self) -> None:
        numbers = self.nodes.tolist()
        worlds = [number // self.seeds.n for number in numbers]
        # Nodes are sorted, so those of one world stand together.
        first = [bisect_left(worlds, s) for s in range(len(self.seeds) + 1)]
        self._of_world = [slice(a, b) for a, b in pairwise(first)]
        origins = [numbers[first[s]] for s in worlds] if self.common_start else numbers
        modules = [self._module(origin) for origin in origins]
        self.params = self._gather([_parameters(module, trained=True) for module in modules])
        self.buffers = self._gather(
            [_parameters(module, trained=False) | dict(module.named_buffers()) for module in modules]
        )
        self.skeleton = with_named_dropout(modules[0])  # the architecture; its own parameters mean nothing
        self.is_head = heads.is_head(self.skeleton)
        linear = [module for module in self.skeleton.modules() if isinstance(module, nn.Linear)]
        # What a representation is: the input of the last linear layer, where something trained makes it.
        self._last = linear[-1] if linear and not self.is_head else None
        self.looped = False
        self.looped_because = self._trial()
        self.looped = self.backend == "loop" or self.looped_because is not None
        self.momentum = {name: torch.zeros_like(p) for name, p in self.params.items()}

    def _module(self, node: int) -> nn.Module:
        """That of one node, initialised from its own key, always on the CPU."""
        with torch.random.fork_rng(devices=[]):
            # Not torch.manual_seed: that also tells every kind of accelerator, a millisecond each time.
            torch.default_generator.manual_seed(self.seeds.small_seed("initial weights", node))
            module = self.fresh()
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
        self.skeleton.to(self.view.device, self.view.dtype).train()
        x = self.view[:2].clone()
        gpu = [self.view.device] if self.view.is_cuda else []
        buffers = {name: b[0].clone() for name, b in self.buffers.items()}
        own = {name: p[0] for name, p in self.params.items()}
        with torch.no_grad(), torch.random.fork_rng(devices=gpu):
            before = _generator_states(gpu)
            try:
                logits = functional_call(self.skeleton, (own, buffers), (x,))
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
            for name, module in self.skeleton.named_modules()
            if isinstance(module, Dropout) and module.unit_shape is not None
        ]
        if any(not torch.equal(b, self.buffers[name][0]) for name, b in buffers.items()):
            return "it changes its buffers in training (batch normalisation?)"
        try:
            with torch.no_grad():
                masks = self._masks(torch.zeros_like(self.nodes[:1]), len(x))
                self._run({**self._slice(slice(0, 1)), **masks}, self.view[:2][None].clone(), train=True)
        except RuntimeError as error:
            return f"torch.vmap cannot run it ({str(error).splitlines()[0]})"
        return None

    def _slice(self, which: slice | int | Int[Tensor, "_"]) -> dict[str, Tensor]:
        """Parameters and buffers of some nodes of the stack."""
        return {name: t[which] for name, t in {**self.params, **self.buffers}.items()}

    def _one(self, state: dict[str, Tensor], x: Float[Tensor, "B *s"], train: bool) -> Tensor:
        self.skeleton.train(train)
        out: Tensor = functional_call(self.skeleton, state, (x,))
        return out

    def _run(
        self, state: dict[str, Tensor], x: Float[Tensor, "k B *s"], train: bool
    ) -> Float[Tensor, "k B C"]:
        """Logits of nodes, whose parameters, buffers and masks these are, each on its own inputs."""
        if self.looped:
            return torch.stack([self._one(_at(state, i), x[i], train) for i in range(len(x))])
        if self.is_head:
            return heads.logits(state, x, state.get(heads.MASK))
        out: Tensor = torch.vmap(lambda s, one: self._one(s, one, train))(state, x)
        return out

    def _embedded(self, state: dict[str, Tensor], x: Float[Tensor, "B *s"]) -> tuple[Tensor, Tensor]:
        """Logits of one node in training, and what its last linear layer saw."""
        assert self._last is not None
        seen: list[Tensor] = []
        hook = self._last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            logits = self._one(state, x, train=True)
        finally:
            hook.remove()
        return logits, seen[-1].flatten(1)

    def _masks(self, key: Int[Tensor, "k"], rows: int) -> dict[str, Tensor]:
        return {
            f"{name}.mask": dropout_mask(fold(key, layer), (rows, *unit_shape), p, self.view.dtype)
            for layer, (name, p, unit_shape) in enumerate(self._dropouts)
        }

    def _pieces(self, rows: int) -> list[slice]:
        """The nodes that run together: one after another, as many as are quick together, or all of them."""
        k = size = len(self.nodes)
        if self.looped:
            size = 1
        elif self.is_head:
            numbers = max(1, rows * self.view[0].numel())
            size = max(1, _LEARNT_AT_ONCE[self.view.device.type] // numbers)
            if not self.view.is_cuda:  # something for every thread, and not the last piece for one alone
                fair = -(-k // (2 * torch.get_num_threads()))
                size = min(size, max(fair, _WORTH_A_PIECE // numbers, 1))
        return [slice(i, min(i + size, k)) for i in range(0, k, size)]

    def _inputs(self, examples: Int[Tensor, "k B"], own: bool = False) -> Float[Tensor, "k B *s"]:
        """How examples look. With `own` they lie in a buffer that the next call of this thread overwrites."""
        out = scratch("inputs", self.view, examples.numel(), *self.view.shape[1:]) if own else None
        flat = torch.index_select(self.view, 0, examples.flatten(), out=out)
        return flat.view(*examples.shape, *self.view.shape[1:])

    @torch.no_grad()
    def predict_all(self, examples: Int[Tensor, "worlds U"]) -> Float[Tensor, "k U C"]:
        """p_j(x) of every node of the stack on its own world's examples."""
        parts, size = [], max(1, examples.shape[1])
        if self.is_head and not self.view.is_cuda:  # on a CPU never on many at a time
            size = heads.ROWS
        for who, ids in zip(self._of_world, examples, strict=True):
            if who.start < who.stop:
                pieces = [self._logits_on(who, self.view.index_select(0, some)) for some in ids.split(size)]
                parts.append(softmax(torch.cat(pieces)).transpose(0, 1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @torch.no_grad()
    def logits_into(self, out: list[Float[Tensor, "U k C"]], x: list[Float[Tensor, "U *s"]]) -> None:
        """Write down what every node of the stack says about inputs that all nodes of its world share."""
        for who, table, inputs in zip(self._of_world, out, x, strict=True):
            if self.is_head and not self.looped:
                heads.shared_logits(self._slice(who), inputs, table)
            else:
                table.copy_(self._logits_on(who, inputs))

    def _logits_on(self, who: slice, x: Float[Tensor, "U *s"]) -> Float[Tensor, "U k C"]:
        """Logits of some nodes of the stack on the same inputs."""
        if self.looped:  # each gets inputs of its own: a module may work in place
            nodes = range(who.start, who.stop)
            return torch.stack([self._one(self._slice(i), x.clone(), False) for i in nodes], 1)
        state = self._slice(who)
        if self.is_head:
            return heads.shared_logits(state, x)
        call = torch.vmap(lambda s, shared: self._one(s, shared, train=False), (0, None), 1)
        size = max(1, self.at_once // ((who.stop - who.start) * max(1, self.view[0].numel())))
        # Copies: a module may work in place, and these inputs are asked about again.
        return torch.cat([call(state, piece.clone()) for piece in torch.split(x, size)])

    @torch.no_grad()
    def predict_own(self, examples: Int[Tensor, "k B"]) -> Float[Tensor, "k B C"]:
        """p_i(x) of every node of the stack on examples of its own."""
        pieces = self._pieces(examples.shape[1])
        logits = [self._run(self._slice(which), self._inputs(examples[which]), False) for which in pieces]
        return softmax(torch.cat(logits))

    def asked(
        self, member: Int[Tensor, "P"], examples: Int[Tensor, "P"]
    ) -> Callable[[], Float[Tensor, "P C"]]:
        """p_j(x) for (member of the stack, example) pairs, sorted by member: told at each call.

        Every model's questions stand in blocks of one size, so that lists of any lengths stack; looped, each
        model has a block of its own size.
        """
        counts = torch.bincount(member, minlength=len(self.nodes))
        rank = torch.arange(len(member), device=member.device)
        if self.looped:
            lists = enumerate(torch.split(examples, counts.tolist()))
            blocks = [(member.new_tensor([i]), ids[None]) for i, ids in lists if len(ids)]
            slot = rank
        else:
            number = (counts + self.block - 1) // self.block
            of_block = torch.repeat_interleave(torch.arange(len(counts), device=member.device), number)
            rank = rank - (counts.cumsum(0) - counts)[member]
            slot = (number.cumsum(0) - number)[member] * self.block + rank
            padded = torch.zeros(len(of_block) * self.block, dtype=torch.int64, device=member.device)
            padded[slot] = examples
            at_once = _LEARNT_AT_ONCE[self.view.device.type] if self.is_head else self.at_once
            size = max(1, at_once // (self.block * max(1, self.view[0].numel())))
            cut = (torch.split(of_block, size), torch.split(padded.view(-1, self.block), size))
            blocks = [(who, ids) for who, ids in zip(*cut, strict=True) if len(who)]

        @torch.no_grad()
        def answers() -> Float[Tensor, "P C"]:
            logits = [self.view.new_empty(0, self.classes)]
            for who, ids in blocks:
                logits.append(self._run(self._slice(who), self._inputs(ids), train=False).flatten(0, 1))
            return softmax(torch.cat(logits)[slot])

        return answers

    @torch.no_grad()
    def logits_of(
        self, member: Int[Tensor, "q"], x: Float[Tensor, "r A *s"], row: Int[Tensor, "q"]
    ) -> Float[Tensor, "q A C"]:
        """What member[k] of the stack says about inputs x[row[k]], which need not be examples."""
        out = x.new_empty(len(member), x.shape[1], self.classes)
        if self.is_head and not self.looped:  # all who speak of an input at once: nothing but heads is copied
            of_row = torch.split(row.argsort(stable=True), torch.bincount(row, minlength=len(x)).tolist())
            for r, speakers in enumerate(of_row):
                if len(speakers):
                    out[speakers] = heads.shared_logits(self._slice(member[speakers]), x[r]).transpose(0, 1)
            return out
        size = max(1, self.at_once // max(1, x[:1].numel()))
        for k in range(0, len(member), size):
            some = slice(k, k + size)
            out[some] = self._run(self._slice(member[some]), x[row[some]], train=False)
        return out

    @torch.no_grad()
    def noisy_logits(self, examples: Int[Tensor, "k B"], key: Int[Tensor, "k"]) -> Float[Tensor, "k B C"]:
        """What the nodes would say in training, dropout on. Changes nothing, no buffer either."""
        pieces = []
        for which in self._pieces(examples.shape[1]):
            state = self._slice(which) | {name: b[which].clone() for name, b in self.buffers.items()}
            state |= self._masks(key[which], examples.shape[1])
            pieces.append(self._run(state, self._inputs(examples[which]), train=True))
        return torch.cat(pieces)


def _at(state: dict[str, Tensor], i: int) -> dict[str, Tensor]:
    """One node's, without the axis of nodes."""
    return {name: t[i] for name, t in state.items()}


def _parameters(module: nn.Module, trained: bool) -> dict[str, Tensor]:
    """The parameters that take gradient steps, or those that their owner has frozen."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad == trained}


def _generator_states(gpu: list[torch.device]) -> list[bytes]:
    """Of torch's own generators, to see whether somebody drew from them."""
    states = [torch.random.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in gpu)]
    return [state.numpy().tobytes() for state in states]
