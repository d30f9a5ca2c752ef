"""Every setting of a study, documented where it is declared. `lntrust studies NAME` prints this page.

Defaults are the paper's sparse CIFAR-10 values wherever the paper has one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lntrust.core.errors import LNTrustError

STUDY_NAME = r"^[\w.-]*\w$"
# What is gone from the partition, with the value that had no effect. Runs are still known by it.
CUT = {"classes_per_node": None}


class Settings(BaseModel):
    """A closed, frozen table of settings: an unknown field is an error.

    What a field means stands in its `description` or, if that would take more lines, in a string below it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for field in cls.model_fields.values():  # lines end in the source only
            field.description = field.description and " ".join(field.description.split())


@dataclass(frozen=True)
class Range:
    """Where `lntrust tune` looks for a setting: between two numbers, or in a list. Annotates its type."""

    low: float = 0.0
    high: float = 1.0
    log: bool = False  # evenly in the logarithm
    choices: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.choices:
            return ", ".join(map(str, self.choices))
        return f"{self.low:g} – {self.high:g}{' (log)' if self.log else ''}"


@dataclass(frozen=True)
class Later:
    """Annotates a field that is younger than some finished runs: at its default it is not part of a run's
    identity, so that those runs are still found."""


def identity_fields(settings: Settings) -> dict[str, Any]:
    """A table of settings, and the tables in it, as a run's identity has them."""
    table = settings.model_dump(mode="json")
    for name, info in type(settings).model_fields.items():
        match getattr(settings, name):
            case value if value == info.default and any(isinstance(mark, Later) for mark in info.metadata):
                del table[name]
            case Settings() as inner:
                table[name] = identity_fields(inner)
            case [Settings(), *_] as several:
                table[name] = [identity_fields(each) for each in several]
    return table


T = TypeVar("T", int, str)


def once_each(given: Sequence[T], field: str, what: str = "seed") -> list[T]:
    """The same, if no two of them are equal: a run beside its copy would look like two that agree."""
    twice = {each for each in given if list(given).count(each) > 1}
    if twice:
        raise LNTrustError(f"{field} {min(twice)}: is given twice; each {what} can be given once")
    return list(given)


class MethodSettings(Settings):
    """What every method of ours can be set to; a method adds its own.

    The learning rate is everybody's to tune, the yardsticks' too.
    """

    lr: Annotated[float | None, Range(0.002, 0.1, log=True)] = Field(None, gt=0)
    """learning rate in both stages; none: training.lr"""


class DataSettings(Settings):
    """What is classified."""

    dataset: Literal["digits", "cifar10", "cifar100", "eurosat", "uci_har"] = "digits"
    """dataset by name; `lntrust data` says which are on this machine"""


class GraphSettings(Settings):
    """Who knows whom."""

    nodes: int = Field(50, ge=1, description="number of nodes n")
    kind: Literal["barabasi_albert", "gnm", "geographic", "ring", "complete", "knn", "file"] = Field(
        "barabasi_albert",
        description="barabasi_albert: grown from a complete graph on attach+1 nodes, then filled with "
        "random edges up to `density`; gnm: uniformly random with exactly ⌊density·n(n−1)/2⌋ edges; "
        "geographic: preferential attachment damped by distance (needs partition.by = region); ring: each "
        "node and the next; complete: all; knn: each node and the `attach` nodes nearest to it in mean "
        "training input (needs partition.by = region or subject); file: see `file`",
    )
    attach: int = Field(2, ge=1, description="edges that each new node brings (the paper's m)")
    density: float | None = Field(None, ge=0, le=1)
    """share p of all possible edges; none: do not fill up"""
    decay_km: float = Field(500.0, gt=0, description="length scale of the geographic kind, in km")
    file: str | None = None
    """edge list (one `a b` per line, nodes 0…n−1) or .graphml, for kind = file"""
    connected: bool = Field(True, description="refuse, or where random draw again, a graph in pieces")
    seed: int | None = Field(None, ge=0)
    """seed of the graph stream, if it shall not follow the run's seed"""

    @model_validator(mode="after")
    def _complete(self) -> "GraphSettings":
        for kind, field in (("gnm", "density"), ("file", "file")):
            if self.kind == kind and getattr(self, field) is None:
                raise ValueError(f"kind = {kind} needs {field}: {type(self).model_fields[field].description}")
        return self


class PartitionSettings(Settings):
    """Whose data. All draws come from the partition stream."""

    by: Literal["label_skew", "region", "subject"] = "label_skew"
    """label_skew: favoured classes; region: k-means on coordinates; subject: one person each"""
    examples: Annotated[Literal["all", "official_training"], Later()] = "all"
    """which may be held at all. official_training: CIFAR's 50,000 training images only, as in the authors'
    code; where CIFAR's order is lost, five in six of each class by a draw that is the same for every seed"""
    draws: Literal["disjoint", "overlapping"] = "disjoint"
    """disjoint: no example is held twice; overlapping: every node draws from all labelled examples by itself,
    so that test and training sets of different nodes overlap, as in the authors' code"""
    labelled: int = Field(50_000, ge=1)
    """labelled examples of all nodes together, test sets included (label_skew)"""
    sizes: Literal["dirichlet", "equal"] = "dirichlet"
    """how `labelled` is shared out: unequally, hubs more; or equally"""
    concentration: float = Field(0.05, gt=0)
    """Dirichlet concentration at mean degree; 1.0 at and above it"""
    size_seed: Annotated[int | None, Later()] = Field(None, ge=0)
    """seed of the draw of sizes, if it shall not follow the run's seed; degrees still are its graph's"""
    minimum: int = Field(100, ge=3, description="labelled examples every node gets at least (label_skew)")
    skew: float = Field(10.0, ge=1)
    """s: the favoured class i mod C weighs s/(s+C−1), the others share the rest"""
    pool: int = Field(10_000, ge=0)
    """class-balanced unlabelled examples set aside before anything else"""
    pool_draws: Annotated[Literal["set_aside", "overlapping"], Later()] = "set_aside"
    """set_aside: nobody holds an example of the pool; overlapping: as in the authors' code, what nobody
    trains on and then any examples, again and again, n·shard in all, so that anybody's training, validation
    and test examples are among them; `pool` then says nothing"""
    pool_fraction: float = Field(0.1, ge=0, lt=1)
    """by = subject: share of each person's segments that goes to the pool"""
    shard: int = Field(2_000, ge=0, description="unlabelled examples per node, drawn from the pool")
    per_region: int = Field(1_000, ge=3, description="by = region: labelled examples per node at most")
    split: Literal["random", "per_class_nearest", "blocks"] = "random"
    """random: inside each node; per_class_nearest: of each class the nearest whole number, as in the
    authors' code, so that a node is not tested on its rare classes (at 15 %, those of 3 examples or fewer);
    blocks (by = region): spatial blocks go wholly to one side, and so do tiles that touch"""
    block_km: float = Field(5.0, gt=0, description="side of a spatial block, in km")
    test_fraction: float = Field(0.15, gt=0, lt=1)
    """share of a node's allocation for its test set"""
    validation: Literal["withheld", "fresh"] = "withheld"
    """withheld: cut from the allocation before Stage 1; fresh (the paper's text): drawn after Stage 1 from
    examples nobody holds (by = region: of the node's own region, which then allots fewer), as many training
    examples being given up for Stage 2"""
    val_fraction: float = Field(0.2, gt=0, lt=1)
    """size of the validation set, as a share of the allocation"""

    @model_validator(mode="before")
    @classmethod
    def _of_today(cls, given: Any) -> Any:
        """Files of earlier versions: what is gone is left out, where it had no effect."""
        if not isinstance(given, Mapping):
            return given
        for name, default in CUT.items():
            if given.get(name, default) != default:
                raise ValueError(f"{name} = {given[name]!r}: is no longer there; leave it out")
        if given.get("split") == "per_class_rounded":
            why = "rounded down, which the authors' code does not; write per_class_nearest, which does as it"
            raise ValueError(f"split = per_class_rounded: {why}")
        return {name: value for name, value in given.items() if name not in CUT}

    @model_validator(mode="after")
    def _fits(self) -> "PartitionSettings":
        if self.test_fraction + self.val_fraction >= 1:
            raise ValueError(
                f"test_fraction {self.test_fraction} and val_fraction {self.val_fraction} leave nothing "
                "to train on: their sum must be below 1"
            )
        for field, value, fit in (
            ("split", "blocks", ("region",)),
            ("split", "per_class_nearest", ("label_skew", "region")),  # it would part segments
            ("examples", "official_training", ("label_skew",)),
            ("draws", "overlapping", ("label_skew",)),
            ("pool_draws", "overlapping", ("label_skew",)),
            ("validation", "fresh", ("label_skew", "region")),
        ):
            if getattr(self, field) == value and self.by not in fit:
                raise ValueError(f"{field} = {value} needs by = {' or '.join(fit)}, not by = {self.by}")
        if self.validation == "fresh" and self.split == "blocks":
            raise ValueError("validation = fresh: not with split = blocks, whose blocks all have a side")
        return self


class LearnerSettings(Settings):
    """One kind of model, and which nodes have it."""

    name: str = Field(description="how tables and figures call it")
    kind: str
    """linear, mlp, cnn1d, cnn2d, forest; onnx, a finished model that does not learn (options: file, and where
    needed input, output, logits); a scikit-learn class, as sklearn.svm:SVC; or your own as
    package.module:factory (called with input_shape, classes and the options; returns an nn.Module or an
    estimator)"""
    view: str = Field(description="what it sees of an example: a view of the dataset")
    noise: Annotated[float, Later()] = Field(0.0, ge=0, le=100)
    """what weakens it: Gaussian noise on its view, in standard deviations of each feature; an example's is
    always the same, whoever has this learner"""
    share: float | None = Field(None, gt=0, le=1, description="by_degree: share of the nodes; none: the rest")
    options: dict[str, Any] = Field(default_factory=dict, description="arguments for the kind, e.g. dropout")


class PopulationSettings(Settings):
    """Which node is what."""

    assign: Literal["by_degree", "in_turn"] = "by_degree"
    """by_degree: the first learner takes round(share·n) nodes of highest degree, and so on (ties: lower
    index); in_turn: node i takes learner i mod their number"""
    learners: list[LearnerSettings] = Field(min_length=1, description="the kinds of models, in order")

    @model_validator(mode="after")
    def _shares(self) -> "PopulationSettings":
        names = [learner.name for learner in self.learners]
        if len(set(names)) < len(names):
            raise ValueError(f"learners must have different names, not {names}")
        if self.assign == "by_degree":
            *firsts, last = self.learners
            if any(learner.share is None for learner in firsts) or last.share is not None:
                raise ValueError(
                    "by_degree: every learner but the last needs a share; the last takes the rest"
                )
            if sum(learner.share or 0 for learner in firsts) > 1:
                raise ValueError("by_degree: the shares sum to more than 1")
        return self


class TrainingSettings(Settings):
    """How every method trains: the same steps for all."""

    stage1_rounds: int = Field(50, ge=0, description="rounds of local training before anybody speaks")
    stage2_rounds: int = Field(200, ge=0, description="rounds with collaboration")
    steps: int = Field(5, ge=1, description="supervised steps per node and round")
    schedule: Literal["every_node", "random_node"] = "every_node"
    """every_node: exactly `steps` steps each; random_node: n·steps draws of a random node"""
    batch: int = Field(64, ge=1, description="examples per step; a batch runs on into the next shuffle")
    lr: float = Field(0.01, gt=0, description="learning rate of SGD, constant")
    momentum: float = Field(0.9, ge=0, lt=1, description="carried through both stages and all kinds of steps")
    l2: float = Field(1e-4, ge=0, description="L2 penalty on supervised steps, biases included")
    refresh: int = Field(10, ge=1)
    """F: trust is refreshed, and estimators are refitted, every F rounds of Stage 2"""
    precision: Literal["float32", "float64"] = Field("float32", description="of parameters and inputs")

    @property
    def rounds(self) -> int:
        return self.stage1_rounds + self.stage2_rounds


class NetworkSettings(Settings):
    """What travels."""

    query: Literal["inputs", "ids", "handle"] = "inputs"
    """how a query names its examples. inputs: the raw tensors; ids: uint32 numbers, for pool examples only
    (private ones still travel); handle: a set of inputs once, then positions in it"""


class EvaluationSettings(Settings):
    """What is measured, and when. Test labels are read once, after training."""

    every: int = Field(10, ge=1)
    """store predictions on test inputs every k rounds, and at the last"""
    pooled: bool = Field(True, description="also score on the union of all test sets (disjoint draws only)")
    checkpoint_every: int = Field(25, ge=1, description="write a checkpoint every k rounds")


# What `reading = "paper"` sets, where a study does not: what the authors' code does.
READING: dict[str, Any] = {
    "training": {"stage2_rounds": 150},
    "methods": {"lntrust": {"kl_scale": "per_class"}},
}
READING_BY_LABEL: dict[str, Any] = {
    "draws": "overlapping", "pool_draws": "overlapping", "split": "per_class_nearest", "size_seed": 0,
}  # fmt: skip


class Study(Settings):
    """A study: who exists, whose data, which models, how they train."""

    name: str = Field(pattern=STUDY_NAME, description="short name, as on the command line")
    about: str = Field("", description="one sentence")
    compare: list[str] = Field(["independent", "uniform", "lntrust"], min_length=1)
    """methods run when none is named"""
    seeds: list[Annotated[int, Field(ge=0)]] = Field([0], min_length=1)
    """seeds run when none is named"""
    reading: Literal["honest", "paper"] = "honest"
    """honest: as all fields say, last round; paper: as the authors' code has it. Where the study does not
    say otherwise, partition.draws = overlapping, pool_draws = overlapping, split = per_class_nearest,
    size_seed = 0 (these by label_skew only), examples = official_training (CIFAR only),
    training.stage2_rounds = 150 and methods.lntrust.kl_scale = per_class; compare, report and reproduce show
    lntrust's best round on test"""
    data: DataSettings = DataSettings()
    graph: GraphSettings = GraphSettings()
    partition: PartitionSettings = PartitionSettings()
    population: PopulationSettings
    training: TrainingSettings = TrainingSettings()
    network: NetworkSettings = NetworkSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    deploy: Literal["self", "uniform", "trust", "fedpae", "stacking", "fens", "knn"] | None = None
    """who answers in the end, whatever the method. self: each node alone; uniform: the mean of the closed
    neighbourhood; trust: as lntrust does, on trust learned once after training; fedpae: the ensemble that
    fedpae selects; stacking, fens: what these make of the closed neighbourhood's answers; knn: each node
    alone, mixed with its nearest examples as knn_per does; none: as the method itself has it"""
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """settings of single methods, a table each: [methods.NAME]"""

    @model_validator(mode="before")
    @classmethod
    def _as_read(cls, table: Any) -> Any:
        """The paper's reading is a choice of other fields."""
        if not isinstance(table, Mapping) or table.get("reading") != "paper":
            return table
        partition, data = (table.get(name) for name in ("partition", "data"))
        chosen = dict(READING)
        if not isinstance(partition, Mapping) or partition.get("by", "label_skew") == "label_skew":
            chosen["partition"] = dict(READING_BY_LABEL)
            if isinstance(data, Mapping) and data.get("dataset") in ("cifar10", "cifar100"):
                chosen["partition"]["examples"] = "official_training"
        return _under(table, chosen)

    @model_validator(mode="after")
    def _consistent(self) -> "Study":
        once_each(self.seeds, "seeds")
        once_each(self.compare, "compare", "method")
        for kind, fit in (("geographic", ("region",)), ("knn", ("region", "subject"))):
            if self.graph.kind == kind and self.partition.by not in fit:
                raise ValueError(f"graph.kind = {kind} needs partition.by = {' or '.join(fit)}")
        return self


def _under(table: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The table, with what was chosen where it says nothing."""
    out = dict(table)
    for name, value in chosen.items():
        if isinstance(value, Mapping) and isinstance(given := out.get(name, {}), Mapping):
            out[name] = _under(given, value)
        else:
            out.setdefault(name, value)
    return out


def recorded(study: Study) -> dict[str, Any]:
    """What decides a run's result, as whatever is kept of runs has it: with settings that are gone by now."""
    told = ("about", "compare", "seeds", "methods")
    table = {name: value for name, value in identity_fields(study).items() if name not in told}
    table["partition"] |= CUT
    return table
