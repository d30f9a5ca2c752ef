"""The shape of a method: what it may touch, and the three verbs it answers to."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, get_args

import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor
from typing_extensions import TypeVar

from lntrust.core.cuda_graphs import CudaGraph
from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import Seeds, Stream, choose, fold
from lntrust.learners import Batch, Labelled, Population
from lntrust.learners.estimators import Estimators
from lntrust.learners.population import PseudoLabels
from lntrust.network import Network, Questions, Replies, WireFormat
from lntrust.network.neighbourhood import Neighbourhood
from lntrust.study.settings import MethodSettings, Settings
from lntrust.world import World

# What examples are drawn for. A new purpose goes to the end, so that it moves no other's draws.
Purpose = Literal["sample", "distil", "teacher", "mutual"]
Tensors = dict[str, Tensor]  # by name, as a checkpoint holds them
# What a method carries from round to round: named tensors or, if it packs and unpacks it, anything else.
State = Tensors
S = TypeVar("S", default=State)
ALL = slice(None)


def below(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def under(prefix: str, tensors: Tensors) -> Tensors:
    """The same tensors, with this before their names."""
    return {prefix + name: t for name, t in tensors.items()}


@dataclass(frozen=True)
class Schedule:
    """The rounds t = 1 … of Stage 2, as the driver runs them."""

    rounds: int
    final: int = 0  # so many at the end train on validation labels too: nothing is fitted to these any more

    def due(self, t: int, every: int) -> bool:
        """Whether what is fitted to validation labels is fitted anew in round t, and before it is frozen."""
        last = self.rounds - self.final
        return t <= last and (t % every == 0 or (self.final > 0 and t == last))

    @property
    def last_fit(self) -> int:
        """The round of the last look at validation labels: after all others, or before the final ones."""
        return self.rounds + 1 if self.rounds and not self.final else max(0, self.rounds - self.final)


class Observer:
    """Watches a run without a part in it; this one sees nothing. `--certify` brings one that does."""

    def __init__(self, site: "Site | None" = None, state: Tensors | None = None) -> None:
        """From Stage 2's start on, or from what a checkpoint has kept."""

    def supervised(self, batch: Batch) -> None:
        """Before the population's own step on this batch."""

    def distilling(self, state: Any, targets: Any) -> AbstractContextManager[None]:
        """Around a step of distillation of a method in this state."""
        return nullcontext()

    def state(self) -> Tensors:
        """All that it knows, for a checkpoint."""
        return {}


class Probe(NamedTuple):
    """p_j(x) for j ∈ N̄(i), x ∈ V_i. Column 0 is the node itself; who gave no sound reply is masked, and 0."""

    mask: Bool[Tensor, "n D"]
    probabilities: Float[Tensor, "T D C"]
    labels: Int[Tensor, "T"]


class AnswerNetwork(Protocol):
    """What methods that exchange predictions and nothing else need of a network: what a live node can give.

    The simulation's also sends tensors (`Site.sharing`). No such method can tell which of them it runs on.
    """

    @property
    def edges(self) -> Int[Tensor, "E 2"]:
        """(asker, answerer), sorted by asker."""

    @property
    def faulty(self) -> Int[ndarray, "E"]:
        """Replies refused so far, by edge of the query."""

    def ask(self, questions: Questions, phase: str, edges: Int[Tensor, "q"] | None = None) -> Replies:
        """What neighbours (all, or those of `edges`) predict; 0 and not sound for who did not answer."""

    def own(self, ids: Int[Tensor, "n B"]) -> Float[Tensor, "n B C"]:
        """What every node says itself about examples of its shard. Nothing travels."""

    def frozen_models(self) -> AbstractContextManager[None]:
        """While inside, nobody learns: the models that answer are those after the supervised steps."""


@dataclass
class Site:
    """All that a method may touch."""

    world: World  # public knowledge and every node's own training and validation labels
    population: Population  # the nodes' own learners: to train them, never to read another's
    network: AnswerNetwork  # the only way to another node
    labelled: Labelled  # the supervised batches that the driver grants
    schedule: Schedule = Schedule(0)
    observer: Observer = field(default_factory=Observer)
    # What was worked out about this site once, to be used in every round.
    known: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def sharing(self) -> Network:
        """The same network, for methods that send tensors over it."""
        if not isinstance(self.network, Network):
            raise LNTrustError("live nodes send no parameters: they answer questions, and nothing else")
        return self.network

    def learn(self, t: int) -> None:
        """The supervised steps of round t."""
        for batch in self.labelled.round(t - 1):
            self.observer.supervised(batch)
            self.population.step(batch)

    def unlabelled(self, purpose: Purpose, count: int, *counters: int) -> Int[Tensor, "n count"]:
        """Examples of each node's shard, without replacement; fewer where the smallest shard is smaller.

        A function of purpose and counters (the round, the step), from the stream of queries.
        """
        return self.shard.gather(1, self.places(purpose, count, *counters))

    def places(self, purpose: Purpose, count: int, *counters: int) -> Int[Tensor, "n count"]:
        """Where those examples stand in `shard`."""
        # Filled on the device: a number that is copied there makes everybody wait.
        device, of_purpose = self.population.device, get_args(Purpose).index(purpose)
        numbers = [torch.full((), c, dtype=torch.int64, device=device) for c in (of_purpose, *counters)]
        return self._draw(*numbers, count=count)

    @cached_property
    def _draw(self) -> CudaGraph:
        size, device = self.shard.shape[1], self.population.device
        keys = self.world.seeds.keys("queries", device)

        def draw(*numbers: Int[Tensor, ""], count: int) -> Int[Tensor, "n count"]:
            key = keys
            for number in numbers:
                key = fold(key, number)
            return choose(key, size, min(count, size))

        return CudaGraph(draw)

    # What does not change from round to round is brought to the device once.

    @cached_property
    def shard(self) -> Int[Tensor, "n S"]:
        """Every node's unlabelled examples."""
        shard = self.world.partition.shard
        return torch.from_numpy(shard.values).to(self.population.device).view(len(shard), -1)

    @cached_property
    def around(self) -> Neighbourhood:
        """N̄(i) of every node."""
        return Neighbourhood.of(self.network.edges, self.population.n)

    @cached_property
    def class_distribution(self) -> Float[Tensor, "n C"]:
        """w_i, of everybody's train and validation labels."""
        w = torch.from_numpy(self.world.class_distribution)
        return w.to(self.population.device, self.population.dtype)

    @cached_property
    def validation(self) -> Questions:
        """Everybody's validation set, as a question to all neighbours."""
        return Questions.ragged(self.world.partition.validation, "validation", self.population.device)

    @cached_property
    def _own_validation(self) -> tuple[Int[Tensor, "T"], Callable[[], Float[Tensor, "T C"]]]:
        owner = torch.from_numpy(self.world.partition.validation.owner).to(self.population.device)
        return owner, self.population.asked(owner, self.validation.ids)

    def probe(self, phase: str, held: Bool[Tensor, "E"] | None = None) -> Probe:
        """Ask everybody about V_i. Over edges where the asker holds a copy of the model, nothing travels."""
        population, around, questions = self.population, self.around, self.validation
        owner, of_own = self._own_validation
        shape = (len(questions.ids), around.mask.shape[1], population.classes)
        probabilities = torch.zeros(shape, dtype=population.dtype, device=population.device)
        probabilities[:, 0] = of_own()  # a node needs no network for itself
        mask = torch.zeros_like(around.mask)
        mask[:, 0] = True
        parts = [None] if held is None else [torch.nonzero(some).flatten() for some in (~held, held)]
        for free, edges in enumerate(parts):  # the second of two: whose models are held
            if edges is None or len(edges):
                with self.sharing.uncharged() if free else nullcontext():
                    replies = self.network.ask(questions, phase, edges)
                route, column = replies.route, around.column[replies.edge]
                probabilities[route.question, column[route.of_edge]] = replies.probabilities
                mask |= self.sound_members(replies)
        return Probe(mask, probabilities, population.labels_of(owner, questions.ids))

    def sound_members(self, replies: Replies) -> Bool[Tensor, "n D"]:
        """Members of N̄(i) whose reply was sound; the node itself always."""
        sound = torch.zeros(len(self.network.edges) + 1, dtype=torch.bool, device=replies.sound.device)
        sound[replies.edge] = replies.sound
        out = sound[self.around.edge]  # edge −1, the last one, is nobody's
        out[:, 0] = True
        return out


def random_order(
    seeds: Seeds, stream: Stream, mask: Bool[Tensor, "n D"], first: int, *counters: int
) -> Int[Tensor, "n D"]:
    """The columns of every row in a random order, those that the mask keeps before all others."""
    number = torch.arange(len(mask), device=mask.device) % seeds.n
    key = fold(fold(seeds.roots(stream, mask.device), first).repeat_interleave(seeds.n), number)
    for counter in counters:
        key = fold(key, counter)
    words = fold(key[:, None], torch.arange(mask.shape[1], device=mask.device))
    return words.masked_fill(~mask, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)


Answer = Callable[[Int[Tensor, "U"]], Float[Tensor, "n U C"]]
# What node i makes of its members' answers on these examples, in the order of its rows; 0: not heard.
Combine = Callable[[int, Float[Tensor, "k U C"], Int[Tensor, "U"]], Float[Tensor, "U C"]]


@dataclass(frozen=True)
class Deployment:
    """Who answers at each node, with which weights.

    Row k says that node members[k, 0] blends in the answer of members[k, 1] with weight weights[k],
    or weights[k, c] for class c. A node without a row answers by itself. Members are the node itself and
    its neighbours; the driver refuses others.
    """

    members: Int[Tensor, "m 2"]
    weights: Float[Tensor, "m"] | Float[Tensor, "m C"]
    # What stands in for the nodes' own models, if not they themselves (a teacher, a central model).
    answer: Answer | None = None
    # Further ways to deploy the same training, by name; reported beside the main one.
    variants: dict[str, "Deployment"] = field(default_factory=dict)
    prior: Float[Tensor, "n C"] | None = None  # multiplied onto node i's answers, if given
    # κ: how sure each node must be to stop asking, see `trust.blend`; none: it asks everybody at once.
    certainty: float | Float[Tensor, "n"] | None = None
    # Rows whose model the node holds a copy of, so that nobody has to be asked; none: no row.
    held: Bool[Tensor, "m"] | None = None
    # The answer of a node that has rows, if it is not the weighted sum: the rows then only say whom it asks.
    combine: Combine | None = None

    @classmethod
    def alone(cls, population: Population) -> "Deployment":
        """Every node answers by itself."""
        node = torch.arange(population.n, device=population.device)
        weights = torch.ones(population.n, device=population.device, dtype=population.dtype)
        return cls(torch.stack([node, node], 1), weights)


def answering(site: Site, parameters: State) -> Answer:
    """Everybody's answers with these parameters (by learner), and with their own where there are none."""

    def answer(examples: Int[Tensor, "U"]) -> Float[Tensor, "n U C"]:
        with site.population.using(parameters):
            return site.population.predict_all(examples)

    return answer


class Method(Generic[S]):
    """A method trains in rounds of Stage 2 and then deploys. Stage 1 takes the same steps for all.

    Subclass, set `about`, override what differs. The file's name, or the class's, is its name. A class with
    nothing in `about` is no method yet, but a base for some.
    """

    about: ClassVar[str] = ""
    # Whether training or deployment looks at validation labels; if so, they are never trained on.
    uses_validation: bool = False
    # What `--certify` puts beside a run of it (none: it has no certificate), and whether it was asked for.
    certificate: type[Observer] | None = None
    certify: bool = False
    # Whether all nodes of one architecture begin with the same parameters, as averaging them asks for.
    common_start: bool = False
    # Whether it works by gradients or parameters, so that learners without them are left out.
    by_gradients: ClassVar[bool] = False
    wire_format: WireFormat = WireFormat()  # how its questions and their replies travel
    # How many rounds at the end of Stage 2 train on validation labels too, and fit nothing to them.
    final_rounds: int = 0
    settings_class: ClassVar[type[Settings]] = MethodSettings
    settings: Settings  # this run's; a subclass narrows the type

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings if settings is not None else self.settings_class()

    def more_identity(self) -> dict[str, Any]:
        """What decides a run's result beside the study and this method's settings."""
        return {}

    def remarks(self, site: Site) -> list[str]:
        """What a user should know before a long run: who cannot take part, say. Told once."""
        stacks = site.population.stacks if self.by_gradients else []
        names = ", ".join(stack.learner.name for stack in stacks if isinstance(stack, Estimators))
        return [f"learners without gradient steps train alone and answer when asked: {names}"] * bool(names)

    def check(self, site: Site) -> None:
        """Refuse, before hours of work, what cannot be carried out."""

    def start(self, site: Site) -> S:
        """Called once, between the stages."""
        return self.unpack({})

    def round(self, site: Site, state: S, t: int) -> S:
        """Round t = 1, 2, … of Stage 2. The default: the supervised steps, and nothing else."""
        site.learn(t)
        return state

    def pseudo_labels(self, site: Site, state: S) -> PseudoLabels | None:
        """What learners that refit shall learn besides their labels, at refresh rounds."""
        return None

    def finish(self, site: Site, state: S) -> S:
        """Called once after the last round, before deployment: a last look at the neighbours, say."""
        return state

    def choose(self, site: Site) -> S:
        """Who shall answer, learned once, after another method has trained: the study's field `deploy`."""
        return self.finish(site, self.unpack({}))

    def deploy(self, site: Site, state: S) -> Deployment:
        """Who answers. Must not change anything: it is also called, uncharged, at evaluated rounds."""
        return Deployment.alone(site.population)

    def report(self, site: Site, state: S, nodes: slice = ALL) -> dict[str, Any]:
        """What the method has to say about these nodes, as JSON; stands in the summary as `method_report`.

        `nodes` are all nodes, or those of one of several worlds; they are numbered from its start.
        """
        return {}

    def tables(self, site: Site, state: S, nodes: slice = ALL) -> dict[str, dict[str, Any]]:
        """Larger records of these nodes, as columns by name; each is written to the folder as a .parquet."""
        return {}

    # -- a state that is more than named tensors -----------------------------------------------------

    def pack(self, state: S) -> Tensors:
        """The state as a checkpoint holds it."""
        return state  # type: ignore[return-value]  # of a method that overrides neither

    def unpack(self, tensors: Tensors) -> S:
        """The state again."""
        return tensors  # type: ignore[return-value]
