"""The population: every node's learner, grouped into stacks of one architecture each."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lntrust.core.cuda_graphs import CudaGraph
from lntrust.core.losses import Loss, cross_entropy
from lntrust.core.randomness import Seeds, fold
from lntrust.core.threads import together
from lntrust.learners.batch import Batch
from lntrust.learners.estimators import Estimators, weighted_rows
from lntrust.learners.inference import Backend
from lntrust.learners.modules import Build, Members, build
from lntrust.learners.training import Stack
from lntrust.learners.views import Views
from lntrust.study.settings import LearnerSettings, TrainingSettings
from lntrust.world.ragged import Ragged


@dataclass(frozen=True)
class PseudoLabels:
    """Soft targets for learners that refit: per node its examples, each with a target and a weight."""

    examples: Ragged
    targets: Float[Tensor, "total C"]
    weight: Float[Tensor, "total"]


@dataclass(eq=False, repr=False)
class Population:
    """All learners of a run. Node i is entry i of every tensor with a node axis.

    Nodes may be of several worlds (seeds) that stand side by side; `labels` then holds the worlds' labels one
    after another. `build` makes the models: those that come with lntrust, unless the caller has its own.
    """

    learners: Sequence[LearnerSettings]
    kinds: Int[np.ndarray, "n"]
    views: Views
    labels: Int[Tensor, "worlds*N"]
    classes: int
    training: TrainingSettings
    seed: int | Seeds
    backend: Backend
    common_start: bool = False
    build: Build = build

    def __post_init__(self) -> None:
        self.n, self.device, self.dtype = len(self.kinds), self.views.device, self.views.dtype
        self.seeds = Seeds.of(self.seed, self.n)
        self._dropout_keys = self.seeds.keys("dropout", self.device)
        self._of_purpose: dict[str, Int[Tensor, "n"]] = {}  # dropout keys
        self._fold = CudaGraph(fold)
        self._steps: dict[str, Int[Tensor, "n"]] = {}
        self.calls: dict[str, int] = {}  # steps of each purpose, whoever took part
        self.last_loss: dict[str, Float[Tensor, "n"]] = {}
        self.stacks: list[Stack | Estimators] = []
        for index, learner in enumerate(self.learners):
            nodes = torch.from_numpy(np.flatnonzero(self.kinds == index)).to(self.device)
            if not len(nodes):
                continue
            made_of = (learner, nodes, self.views.seen_by(learner), self.classes, self.seeds, self.build)
            with torch.random.fork_rng(devices=[]):  # only to see what it is
                example = Members(*made_of).fresh()
            if isinstance(example, nn.Module):
                self.stacks.append(Stack(*made_of, self.backend, self.common_start))
            else:
                self.stacks.append(Estimators(*made_of))

    @property
    def torch_stacks(self) -> list[Stack]:
        return [stack for stack in self.stacks if isinstance(stack, Stack)]

    @property
    def takes_steps(self) -> Bool[Tensor, "n"]:
        """Who learns by gradient steps: every node but those with an estimator."""
        out = torch.zeros(self.n, dtype=torch.bool, device=self.device)
        for stack in self.torch_stacks:
            out[stack.nodes] = True
        return out

    def one_of_each(self, training: TrainingSettings, world: int) -> "Population":
        """A node of each kind: they see the examples of one of the worlds, and draw as its first nodes do."""
        kinds, labels = np.arange(len(self.learners)), self.labels.view(len(self.seeds), -1)[world]
        seed = Seeds((self.seeds.seeds[world],), len(kinds))
        return replace(self, kinds=kinds, labels=labels, training=training, seed=seed, common_start=False)

    def labels_of(self, node: Int[Tensor, "*s"], examples: Int[Tensor, "*s"]) -> Int[Tensor, "*s"]:
        """What nodes know their worlds' examples to be; −1 for what nobody may know."""
        return self.labels.reshape(len(self.seeds), -1)[node // self.seeds.n, examples]

    def step(
        self,
        batch: Batch,
        loss: Loss = cross_entropy,
        targets: tuple[Tensor, ...] = (),
        *,
        more: Int[Tensor, "n U"] | None = None,
        inputs: Mapping[str, Tensor] | None = None,
        embed: bool = False,
    ) -> Float[Tensor, "n"]:
        """One supervised step with L2 for every active node: loss(logits, labels, *targets).

        `more` are further examples, and `inputs` (by learner, [k, A, …]) things that are no examples; the
        loss finds their logits behind those of the batch, in this order. With `embed` it is given, last, the
        representations [n, B, E], or None where nothing trained makes any.
        """
        examples = batch.examples if more is None else torch.cat([batch.examples, more], 1)
        goal, l2 = (batch.labels, *targets), self.training.l2
        return self.descend(
            "supervised", examples, loss, goal, l2=l2, active=batch.active, inputs=inputs, embed=embed
        )

    def descend(
        self,
        purpose: str,
        examples: Int[Tensor, "n B"],
        loss: Loss,
        targets: tuple[Tensor, ...],
        *,
        l2: float = 0.0,
        active: Bool[Tensor, "n"] | None = None,
        inputs: Mapping[str, Tensor] | None = None,
        embed: bool = False,
    ) -> Float[Tensor, "n"]:
        """One SGD step on loss(logits [n,B,C], *targets), each target with a leading node axis.

        Dropout masks come from (node, purpose, how many such steps the node has taken), so that one
        kind of step never moves the masks of another. Who takes no step (an estimator, a node that is
        not active) has the loss NaN.
        """
        key = self._mask_keys(purpose)
        losses = torch.full((self.n,), torch.nan, device=self.device, dtype=self.dtype)
        # All nodes are in order: no copies where one stack holds them all.
        whose = [slice(None) if len(stack.nodes) == self.n else stack.nodes for stack in self.torch_stacks]
        each = []
        with together():  # small stacks beside large ones
            for stack, nodes in zip(self.torch_stacks, whose, strict=True):
                goal = tuple(target[nodes] for target in targets)
                turn = None if active is None else active[nodes]
                beside = None if inputs is None else inputs.get(stack.learner.name)
                of_batch, settings = (examples[nodes], key[nodes], turn, beside, *goal), self.training
                how = {"lr": settings.lr, "momentum": settings.momentum, "l2": l2, "embed": embed}
                each.append(stack.step(*of_batch, loss=loss, **how))
        for nodes, some in zip(whose, each, strict=True):
            losses[nodes] = some
        if active is not None:
            losses.masked_fill_(~active, torch.nan)
        self._count(purpose, active)
        self.last_loss[purpose] = losses
        return losses

    def noisy_logits(
        self, purpose: str, examples: Int[Tensor, "n B"], active: Bool[Tensor, "n"] | None = None
    ) -> Float[Tensor, "n B C"]:
        """Logits under dropout, without a step: masks as `descend` would draw them. Estimators: 0."""
        key = self._mask_keys(purpose)
        out = torch.zeros(*examples.shape, self.classes, device=self.device, dtype=self.dtype)
        for stack in self.torch_stacks:
            out[stack.nodes] = stack.noisy_logits(examples[stack.nodes], key[stack.nodes])
        self._count(purpose, active)
        return out

    def _count(self, purpose: str, active: Bool[Tensor, "n"] | None) -> None:
        self._steps[purpose] = self._steps[purpose] + (1 if active is None else active)
        self.calls[purpose] = self.calls.get(purpose, 0) + 1

    def steps_taken(self, purpose: str) -> Int[Tensor, "n"]:
        """How many steps of this purpose each node has taken so far."""
        none = torch.zeros(self.n, dtype=torch.int64, device=self.device)
        return self._steps.get(purpose, none).clone()

    def _mask_keys(self, purpose: str) -> Int[Tensor, "n"]:
        """The dropout keys of every node's next step of this purpose."""
        if purpose not in self._of_purpose:
            self._of_purpose[purpose] = fold(self._dropout_keys, zlib.crc32(purpose.encode()))
        if purpose not in self._steps:
            self._steps[purpose] = torch.zeros(self.n, dtype=torch.int64, device=self.device)
        return self._fold(self._of_purpose[purpose], self._steps[purpose])

    def head_inputs(
        self, purpose: str, examples: Int[Tensor, "n B"]
    ) -> Iterator[tuple[Stack, Float[Tensor, "k B D"]]]:
        """What the linear heads will see in their next step of this purpose, dropout applied."""
        key = self._mask_keys(purpose)
        for stack in self.torch_stacks:
            if stack.is_head:
                yield stack, stack.head_inputs(examples[stack.nodes], key[stack.nodes])

    def refit(self, labelled: Ragged, pseudo: PseudoLabels | None = None) -> None:
        """Fit every estimator on its labelled examples and, if given, its pseudo-labels."""
        for stack in self.stacks:
            if not isinstance(stack, Estimators):
                continue
            known = self.labels.reshape(len(self.seeds), -1).cpu().numpy()
            for k, i in enumerate(stack.nodes.tolist()):
                ids = labelled[i]
                rows = (ids, known[i // self.seeds.n, ids], np.ones(len(ids)))
                if pseudo is not None:
                    part = slice(pseudo.examples.offsets[i], pseudo.examples.offsets[i + 1])
                    soft, weight = (t[part].cpu().double().numpy() for t in (pseudo.targets, pseudo.weight))
                    more = weighted_rows(pseudo.examples[i], soft, weight)
                    rows = tuple(np.concatenate(pair) for pair in zip(rows, more, strict=True))  # type: ignore[assignment]
                stack.fit(k, *rows)

    def predict_all(self, examples: Int[Tensor, "U"] | Int[Tensor, "worlds U"]) -> Float[Tensor, "n U C"]:
        """Every node's class probabilities on the same examples, or on those of its world."""
        each = examples.expand(len(self.seeds), -1) if examples.ndim == 1 else examples
        if len(self.stacks) == 1:
            return self.stacks[0].predict_all(each)
        out = torch.empty(self.n, each.shape[1], self.classes, device=self.device, dtype=self.dtype)
        for stack in self.stacks:
            out[stack.nodes] = stack.predict_all(each)
        return out

    def predict_own(self, examples: Int[Tensor, "n B"]) -> Float[Tensor, "n B C"]:
        """Every node's class probabilities on examples of its own."""
        out = torch.empty(*examples.shape, self.classes, device=self.device, dtype=self.dtype)
        for stack in self.stacks:
            out[stack.nodes] = stack.predict_own(examples[stack.nodes])
        return out

    def asked(
        self, nodes: Int[Tensor, "P"], examples: Int[Tensor, "P"]
    ) -> Callable[[], Float[Tensor, "P C"]]:
        """Class probabilities for (node, example) pairs, laid out once and told at each call.

        Each different pair is computed once.
        """
        total = len(self.labels) // len(self.seeds)
        pairs, inverse = torch.unique(nodes * total + examples, return_inverse=True)
        node, example = pairs // total, pairs % total
        place = torch.full((self.n,), -1, dtype=torch.int64, device=self.device)
        parts = []
        for stack in self.stacks:
            place.fill_(-1)
            place[stack.nodes] = torch.arange(len(stack.nodes), device=self.device)
            member = place[node]
            mine = torch.nonzero(member >= 0).flatten()
            parts.append((mine, stack.asked(member[mine], example[mine])))

        def answers() -> Float[Tensor, "P C"]:
            out = torch.empty(len(pairs), self.classes, device=self.device, dtype=self.dtype)
            for row, told in parts:
                out[row] = told()
            return out[inverse]

        return answers

    def parameters(self, stack: Stack) -> Float[Tensor, "n P"]:
        """The flattened parameters of one architecture's nodes; 0 for everybody else."""
        own = stack.flat()
        out = own.new_zeros(self.n, own.shape[1])
        out[stack.nodes] = own
        return out

    def set_parameters(self, stack: Stack, rows: Float[Tensor, "n P"]) -> None:
        for name, value in stack.unflat(rows[stack.nodes]).items():
            stack.params[name].copy_(value)

    @contextmanager
    def using(self, parameters: Mapping[str, Float[Tensor, "n P"]]) -> Iterator[None]:
        """For a while, answer with these parameters (by learner) instead of the nodes' own."""
        chosen = [stack for stack in self.torch_stacks if stack.learner.name in parameters]
        own = [stack.params for stack in chosen]
        for stack in chosen:
            stack.params = stack.unflat(parameters[stack.learner.name][stack.nodes])
        try:
            yield
        finally:
            for stack, params in zip(chosen, own, strict=True):
                stack.params = params

    def state(self) -> dict[str, Tensor]:
        """All that changes in training, for a checkpoint."""
        out = {f"steps/{purpose}": count for purpose, count in self._steps.items()}
        for stack in self.stacks:
            out |= {f"{stack.learner.name}/{name}": t for name, t in stack.state().items()}
        return out

    def load(self, state: dict[str, Tensor]) -> None:
        for name, tensor in state.items():
            if name.startswith("steps/"):
                self._steps[name.removeprefix("steps/")] = tensor.to(self.device)
        for stack in self.stacks:
            prefix = f"{stack.learner.name}/"
            stack.load({n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)})
