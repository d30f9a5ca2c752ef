"""The population: every node's learner, grouped into stacks of one architecture each."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lntrust.learners.batch import Batch
from lntrust.learners.estimators import Estimators, weighted_rows
from lntrust.learners.losses import Loss, cross_entropy
from lntrust.learners.modules import build
from lntrust.learners.stack import Backend, Stack
from lntrust.learners.views import Views
from lntrust.randomness import fold, stream_key
from lntrust.settings import LearnerSettings, TrainingSettings
from lntrust.world.ragged import Ragged


@dataclass(frozen=True)
class PseudoLabels:
    """Soft targets for learners that refit: per node its examples, each with a target and a weight."""

    examples: Ragged
    targets: Float[Tensor, "total C"]
    weight: Float[Tensor, "total"]


class Population:
    """All learners of a run. Node i is entry i of every tensor with a node axis."""

    def __init__(
        self,
        learners: Sequence[LearnerSettings],
        kinds: Int[np.ndarray, "n"],
        views: Views,
        labels: Int[Tensor, "N"],
        classes: int,
        training: TrainingSettings,
        seed: int,
        backend: Backend,
        common_start: bool = False,
    ) -> None:
        self.n = len(kinds)
        self.classes = classes
        self._views, self.labels = views, labels
        self.device, self.dtype = views.device, views.dtype
        self.backend: Backend = backend
        self._seed = seed
        self.training = training
        self._known_labels = labels.cpu().numpy()
        self._dropout_key = stream_key(seed, "dropout", self.device)
        self._steps: dict[str, Int[Tensor, "n"]] = {}
        self.calls: dict[str, int] = {}  # steps of each purpose, whoever took part
        self.last_loss: dict[str, Float[Tensor, "n"]] = {}
        self.stacks: list[Stack | Estimators] = []
        for index, learner in enumerate(learners):
            nodes = torch.from_numpy(np.flatnonzero(kinds == index)).to(self.device)
            if not len(nodes):
                continue
            view = views[learner.view]
            with torch.random.fork_rng(devices=[]):  # only to see what it is
                example = build(learner, tuple(view.shape[1:]), classes)
            if isinstance(example, nn.Module):
                self.stacks.append(Stack(learner, nodes, view, classes, seed, backend, common_start))
            else:
                self.stacks.append(Estimators(learner, nodes, view, classes, seed))

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

    def sibling(
        self, learners: Sequence[LearnerSettings], kinds: Int[np.ndarray, "n"], training: TrainingSettings
    ) -> "Population":
        """Another population that sees the same examples, initialised as its own nodes would be."""
        parts = (self._views, self.labels, self.classes, training, self._seed, self.backend)
        return Population(learners, kinds, *parts)

    # -- learning ---------------------------------------------------------------------------------

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
        return self.descend(
            "supervised",
            examples,
            loss,
            (batch.labels, *targets),
            l2=self.training.l2,
            active=batch.active,
            inputs=inputs,
            embed=embed,
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
        for stack in self.torch_stacks:
            nodes = stack.nodes
            part = tuple(target[nodes] for target in targets)
            turn = None if active is None else active[nodes]
            beside = None if inputs is None else inputs.get(stack.learner.name)
            losses[nodes] = stack.step(
                examples[nodes], loss, part, key[nodes], self.training, l2, turn, beside, embed
            )
        if active is not None:
            losses.masked_fill_(~active, torch.nan)
        self._taken(purpose, active)
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
        self._taken(purpose, active)
        return out

    def _taken(self, purpose: str, active: Bool[Tensor, "n"] | None) -> None:
        self._steps[purpose] = self._steps[purpose] + (1 if active is None else active)
        self.calls[purpose] = self.calls.get(purpose, 0) + 1

    def steps_taken(self, purpose: str) -> Int[Tensor, "n"]:
        """How many steps of this purpose each node has taken so far."""
        none = torch.zeros(self.n, dtype=torch.int64, device=self.device)
        return self._steps.get(purpose, none).clone()

    def _mask_keys(self, purpose: str) -> Int[Tensor, "n"]:
        """The dropout keys of every node's next step of this purpose."""
        fresh = torch.zeros(self.n, dtype=torch.int64, device=self.device)
        taken = self._steps.setdefault(purpose, fresh)
        node = torch.arange(self.n, device=self.device)
        return fold(fold(fold(self._dropout_key, node), zlib.crc32(purpose.encode())), taken)

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
            for k, i in enumerate(stack.nodes.tolist()):
                ids = labelled[i]
                rows = (ids, self._known_labels[ids], np.ones(len(ids)))
                if pseudo is not None:
                    part = slice(pseudo.examples.offsets[i], pseudo.examples.offsets[i + 1])
                    soft = pseudo.targets[part].cpu().numpy().astype(np.float64)
                    weight = pseudo.weight[part].cpu().numpy().astype(np.float64)
                    more = weighted_rows(pseudo.examples[i], soft, weight)
                    rows = tuple(np.concatenate(pair) for pair in zip(rows, more, strict=True))  # type: ignore[assignment]
                stack.fit(k, *rows)

    # -- answering --------------------------------------------------------------------------------

    def predict_all(self, examples: Int[Tensor, "U"]) -> Float[Tensor, "n U C"]:
        """Every node's class probabilities on the same examples."""
        out = torch.empty(self.n, len(examples), self.classes, device=self.device, dtype=self.dtype)
        for stack in self.stacks:
            out[stack.nodes] = stack.predict_all(examples)
        return out

    def predict(self, nodes: Int[Tensor, "P"], examples: Int[Tensor, "P"]) -> Float[Tensor, "P C"]:
        """Class probabilities for (node, example) pairs, each different pair computed once."""
        total = int(examples.max()) + 1 if len(examples) else 1
        pairs, inverse = torch.unique(nodes * total + examples, return_inverse=True)
        node, example = pairs // total, pairs % total
        out = torch.empty(len(pairs), self.classes, device=self.device, dtype=self.dtype)
        place = torch.full((self.n,), -1, dtype=torch.int64, device=self.device)
        for stack in self.stacks:
            place.fill_(-1)
            place[stack.nodes] = torch.arange(len(stack.nodes), device=self.device)
            member = place[node]
            mine = member >= 0
            out[mine] = stack.predict(member[mine], example[mine])
        return out[inverse]

    # -- sharing ----------------------------------------------------------------------------------

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

    # -- keeping ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """All that changes in training, for a checkpoint."""
        out = {f"steps/{purpose}": taken for purpose, taken in self._steps.items()}
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
