"""Every setting of a live node, documented where it is declared: the fields of NODE.toml."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from lntrust.core.errors import LNTrustError
from lntrust.core.plugins import look_in
from lntrust.fleet.operations.certificates import NAME
from lntrust.methods.lntrust.settings import LNTrustSettings
from lntrust.study.loading import explain
from lntrust.study.settings import LearnerSettings, Settings, TrainingSettings


def _beside(path: Path, info: ValidationInfo) -> Path:
    """A path as a NODE.toml means it: beside the file, whose folder is the context."""
    return (info.context or Path()) / path


def _file_beside(source: str, info: ValidationInfo) -> str:
    """The same for a source of data; one that is no file stays as it is."""
    return str(_beside(Path(source), info)) if Path(source).suffix in (".npz", ".parquet") else source


Beside = Annotated[Path, AfterValidator(_beside)]
Source = Annotated[str, AfterValidator(_file_beside)]
Address = Annotated[str, Field(pattern=r"^(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}$")]  # host:port
_NAME = f"^{NAME.pattern}$"
REFUSED = ("query", "final_rounds", "split_validation")  # of [trust]; `_can_be_lived` says why
_MOVED_VIEWS = {"lntrust.fleet.demo_data:as_image": "lntrust.fleet.settings:one_channel"}
_MOST_CLASSES = 1 << 15  # that a reply of the likeliest few can tell apart
DTYPES = ("uint8", "int8", "int16", "int32", "int64", "uint16", "float16", "float32", "float64", "bool")


class InputSettings(Settings):
    """What is classified. All nodes of a fleet have to agree on it, and say so when they meet."""

    name: str = Field("input", min_length=1, description="its name, as clients and neighbours call it")
    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(description="of one input, e.g. [3, 32, 32]")
    dtype: Literal[DTYPES] = Field(  # type: ignore[valid-type]
        "float32", description="of the numbers that travel: " + ", ".join(DTYPES)
    )
    classes: tuple[str, ...] = Field(min_length=2, description="their names, in the order of the labels")

    @model_validator(mode="after")
    def _fits(self) -> "InputSettings":
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes {list(self.classes)}: names must differ")
        return self


class ModelSettings(Settings):
    """The node's own model."""

    kind: str
    """linear, mlp, cnn1d, cnn2d, forest, onnx; a scikit-learn class, as
    sklearn.ensemble:ExtraTreesClassifier; or your own package.module:factory, called with input_shape,
    classes and the options, which returns an nn.Module or a classifier with predict_proba"""
    options: dict[str, Any] = Field({}, description='arguments for the kind; onnx: file = "model.onnx"')
    weights: Beside | None = Field(None, description="a torch model's first parameters, a .safetensors file")
    scale: float = Field(1.0, description="inputs times this (1/255, say) are what the model sees")
    view: str | None = None
    """package.module:function from inputs [m, …] to what the model sees, if any"""
    trains: bool = Field(True, description="false: the model answers as it is, and learns nothing")

    @field_validator("options")
    @classmethod
    def _onnx_lies_beside(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        names_file = info.data.get("kind") == "onnx" and isinstance(options.get("file"), str)
        return {**options, "file": str(_beside(Path(options["file"]), info))} if names_file else options

    @field_validator("view")
    @classmethod
    def _where_it_is_now(cls, view: str | None) -> str | None:
        return _MOVED_VIEWS.get(view or "", view)


class DataSettings(Settings):
    """The node's own data, and which of it may leave the device."""

    labelled: Source
    """inputs and labels: .npz or .parquet (columns x and y), or package.module:loader, which returns (x, y).
    Labels are numbers, or names of classes. They never leave the device"""
    probe_with: Source
    """labelled inputs that neighbours are shown to learn whom to trust. validation: the part that is withheld
    below; a file or loader: those instead; none: show nothing, and answer alone"""
    shard: Source
    """unlabelled inputs that neighbours are shown to learn from their answers: a .npz or .parquet (x),
    package.module:loader, or none: show nobody anything, and learn alone"""
    val_fraction: float = Field(0.2, gt=0, lt=1, description="share of the labelled inputs that is withheld")
    deployed: bool = True
    """whether trusted neighbours are shown what clients ask about; false: answer alone"""


class NeighbourSettings(Settings):
    """Somebody to ask: a node of the fleet by the name in its certificate, or a server by its URL."""

    name: str = Field(pattern=_NAME, description="the name in its certificate; of a server, any")
    address: Address | None = Field(None, description="host:port where it listens; none: it connects to us")
    url: str | None = Field(None, pattern=r"^https?://\S+$")
    """a server of the Open Inference Protocol: http://host:port/v2/models/MODEL. It has no certificate of
    ours; https is checked against the system's authorities"""
    input: str | None = Field(None, description="url: the input tensor's name; none: as ours")
    output: str = Field("probabilities", description="url: the output tensor with class probabilities")
    classes: tuple[str, ...] | None = Field(None, description="url: its classes in its order; none: as ours")
    token: Beside | None = Field(None, description="url: a file with a bearer token")

    @model_validator(mode="after")
    def _one_door(self) -> "NeighbourSettings":
        if self.url and self.address:
            raise ValueError(f"neighbour {self.name}: has an address or a url, not both")
        if not self.url and (self.input or self.classes or self.token):
            raise ValueError(f"neighbour {self.name}: input, classes and token belong to a url")
        return self


class NetworkSettings(Settings):
    """The door between nodes."""

    listen: Address = Field("127.0.0.1:7447", description="host:port where neighbours reach this node")
    certificates: Beside = Field(Path(), validate_default=True)
    """folder of node.pem, node.key, ca.pem (`lntrust fleet certs`)"""
    choose: Literal["listed", "allowed"] = "listed"
    """listed: every neighbour below; allowed: the `fastest` of those present"""
    fastest: int = Field(8, ge=1, description="choose = allowed: how many to ask")
    fleet_size: int | None = Field(None, ge=1, description="n of the feature d_j/n; none: neighbours + 1")
    multicast: bool = Field(False, description="find neighbours without an address by multicast")
    clock: Literal["own", "lockstep"] = "own"
    """own: nobody waits for anybody; lockstep: questions name a round, and wait for it (to compare with a
    simulation)"""
    number: int | None = Field(None, ge=0, description="lockstep: the node's number in the simulation")


class LimitSettings(Settings):
    """What this node grants others, and how long it waits for them."""

    deadline: float = Field(1.0, gt=0, le=600, description="seconds in which a client has its answer")
    patience: float = Field(5.0, gt=0, le=600, description="seconds to wait for neighbours while training")
    rate: float = Field(50_000.0, gt=0, description="examples a second that one neighbour may ask about")
    burst: float = Field(100_000.0, ge=1, description="examples that one neighbour may ask about at once")
    workers: int = Field(2, ge=1, le=64, description="threads that answer neighbours")
    waiting: int = Field(16, ge=0, description="questions that may wait for them; others are told: busy")
    retries: int = Field(1, ge=0, le=10, description="times to ask again, while training, who did not answer")
    failures: int = Field(3, ge=1, description="failures in a row after which a neighbour is left alone")
    pause: float = Field(1.0, gt=0, description="seconds for which it is at first; doubles up to a minute")


class HttpSettings(Settings):
    """The door for clients: Open Inference Protocol v2, /status and /metrics."""

    listen: Address | Literal["off"] = Field("127.0.0.1:8080", description="host:port, or off")
    token: Beside | None = Field(None, description="a file with the token that clients must show, if any")
    largest: int = Field(16 << 20, ge=1, description="bytes of a request at most")


class LifeSettings(Settings):
    """How the node lives."""

    state: Beside = Field(Path("state"), validate_default=True, description="folder of what a restart needs")
    save_every: float = Field(10.0, gt=0, description="seconds between two states on disk")
    refresh_every: float = Field(60.0, gt=0, description="seconds between two probes, once training is over")
    wait: float = Field(30.0, ge=0, description="seconds in which Stage 2 waits for a first neighbour")
    rest: float = Field(0.0, ge=0, description="seconds between two rounds that are left to others")
    threads: int = Field(1, ge=1, description="threads of torch and numpy")
    log: Literal["json", "text"] = Field("json", description="one JSON object a line, or text for people")


class NodeSettings(Settings):
    """A live node: NODE.toml."""

    name: str = Field(pattern=_NAME, description="the name in its certificate")
    seed: int = Field(0, ge=0, description="of initial weights, batches and draws")
    input: InputSettings
    model: ModelSettings
    data: DataSettings
    neighbours: list[NeighbourSettings] = Field(default_factory=list)
    network: NetworkSettings = Field({}, validate_default=True)
    limits: LimitSettings = LimitSettings()
    http: HttpSettings = HttpSettings()
    life: LifeSettings = Field({}, validate_default=True)
    training: TrainingSettings = TrainingSettings()
    trust: LNTrustSettings = LNTrustSettings()

    @model_validator(mode="after")
    def _can_be_lived(self) -> "NodeSettings":
        trust, names = self.trust, [each.name for each in self.neighbours]
        if self.training.schedule != "every_node":
            why = "needs somebody who draws; a node takes its own steps"
            raise ValueError(f"training: schedule = {self.training.schedule} {why}")
        if trust.query not in (None, "inputs"):
            why = "live nodes always send the inputs that they ask about; leave it out"
            raise ValueError(f"trust: query = {trust.query}: {why}")
        if trust.final_rounds:
            why = (
                "would train on validation labels, with which a deployed node goes on probing its neighbours"
            )
            raise ValueError(f"trust: final_rounds = {trust.final_rounds}: {why}; leave it out")
        if trust.split_validation:
            why = "is for a last fit; a deployed node goes on fitting, and has no certificate"
            raise ValueError(f"trust: split_validation = true: {why}; leave it out")
        if len(set(names)) < len(names):
            raise ValueError(f"neighbours: names must differ, not {names}")
        if self.name in names:
            raise ValueError(f"neighbours: {self.name} is this node itself")
        if self.network.clock == "lockstep" and self.network.number is None:
            why = "needs network.number, the node's number in the simulation"
            raise ValueError(f"network.clock = lockstep {why}")
        if trust.reply.startswith("top") and len(self.input.classes) > _MOST_CLASSES:
            why = f"numbers at most {_MOST_CLASSES} classes; take uint8"
            raise ValueError(f"trust.reply = {trust.reply}: {why}")
        return self

    @property
    def peers(self) -> list[NeighbourSettings]:
        """The neighbours that are nodes of the fleet."""
        return [each for each in self.neighbours if not each.url]

    @property
    def learner(self) -> LearnerSettings:
        return LearnerSettings(name="own", kind=self.model.kind, view="own", options=self.model.options)


def load_node(path: str | Path) -> NodeSettings:
    """The settings in a NODE.toml; files it names are found beside it."""
    path = Path(path)
    if path.is_dir():
        path = path / "NODE.toml"
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LNTrustError(f"{path}: not a readable TOML file: {error}") from None
    folder = path.resolve().parent
    look_in(folder)  # a model of one's own lies beside its settings
    return parse_node(text, str(path), folder)


def parse_node(text: str, source: str, folder: Path | None = None) -> NodeSettings:
    """The settings in a NODE.toml's text; `source` is what to blame, and its paths lie in `folder`."""
    try:
        return NodeSettings.model_validate(tomllib.loads(text), context=folder)
    except tomllib.TOMLDecodeError as error:
        raise LNTrustError(f"{source}: not a readable TOML file: {error}") from None
    except ValidationError as error:
        raise LNTrustError(explain(error, f"node {source}", NodeSettings)) from None


def one_channel(x: Any) -> Any:
    """A `model.view` for convolutions: grey images [m, h, w] as [m, 1, h, w]."""
    return x[:, None]


def fields_of(model: type[Settings], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(path, default, meaning) of every field, depth first."""
    for name, info in model.model_fields.items():
        inner = info.annotation
        tables = [t for t in (inner, *get_args(inner)) if isinstance(t, type) and issubclass(t, Settings)]
        if tables:
            path = name if tables[0] is inner else f"[[{name}]]"
            yield from fields_of(tables[0], f"{prefix}{path}.")
            continue
        default = "required" if info.is_required() else info.get_default(call_default_factory=True)
        text = str(default).lower() if default is None or isinstance(default, bool) else str(default)
        yield f"{prefix}{name}", text, info.description or ""
