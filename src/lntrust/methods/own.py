"""Methods of the user's own: what fails in them, or what they return, is reported as theirs.

The verbs that their author has written are called through one thin wrapper. An exception that shows no line
of the author's (one that shows it speaks for itself) and a return that nobody can use become an error which
names the class, the verb and what was wrong.
"""

import inspect
import json
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from lntrust.core.errors import CannotStackError, LNTrustError
from lntrust.core.plugins import users_fault
from lntrust.learners.population import PseudoLabels
from lntrust.methods.base import Deployment, Method, Site
from lntrust.network import WireFormat
from lntrust.study.settings import Settings
from lntrust.world.ragged import Ragged

# What a verb may return: of which type, in words, and what is asked of its content.
Return = tuple[Any, str, Callable[[Any, Any], Iterator[str]]]


def construct(method: type[Method[Any]], settings: Settings, name: str) -> Method[Any]:
    """A method with its settings, however its author has written `__init__`."""
    try:
        found = method(settings)
    except TypeError as error:
        if users_fault(error):
            raise
        raise LNTrustError(f"method {name}: __init__ cannot be called with the settings: {error}") from None
    if getattr(found, "settings", None) is not settings:
        raise LNTrustError(f"method {name}: __init__ must hand its settings on: super().__init__(settings)")
    return found


def guard(method: Method[Any], name: str) -> Method[Any]:
    """The same method, with its author's verbs wrapped."""
    packs = type(method).pack is not Method.pack  # then its state may be anything
    for verb, right in _RETURNS.items():
        if _of_its_author(method, verb):
            right = None if packs and right is _STATE and verb != "pack" else right
            setattr(method, verb, _guarded(getattr(method, verb), f"method {name}: {verb}", right))
    return method


def check_verbs(method: Method[Any], name: str, stacked: bool = False) -> None:
    """Refuse, before hours of work, verbs of the user's that cannot be called as they will be.

    Of several worlds side by side, report and tables are asked about the nodes of one.
    """
    inner = getattr(method, "inner", method)  # whose deployment another's takes the place of
    for verb in filter(lambda verb: _of_its_author(inner, verb), _RETURNS):
        usual = inspect.signature(getattr(Method, verb)).parameters.values()
        given = [each.name for each in usual if each.default is each.empty or stacked][1:]  # without self
        try:
            inspect.signature(getattr(inner, verb)).bind(*given)
        except (TypeError, ValueError) as error:
            called = f"{verb}({', '.join(given)})"
            wrong = f"method {name}: {verb} cannot be called as {called}: {error}"
            if given[-1:] == ["nodes"]:
                raise CannotStackError(f"{wrong}; seeds cannot be stacked, run them one by one") from None
            raise LNTrustError(wrong) from None
    for field, kind in (("wire_format", WireFormat), ("final_rounds", int)):
        found = getattr(inner, field)
        if not isinstance(found, kind):
            raise LNTrustError(f"method {name}: {field} is {found!r}; must be of type {kind.__name__}")


def _of_its_author(method: Method[Any], verb: str) -> bool:
    return str(getattr(getattr(type(method), verb), "__module__", "")).partition(".")[0] != "lntrust"


def _guarded(verb: Callable[..., Any], blamed: str, right: Return | None) -> Callable[..., Any]:
    @wraps(verb)
    def call(*given: Any, **named: Any) -> Any:
        try:
            made = verb(*given, **named)
        except LNTrustError:
            raise
        except Exception as error:
            if users_fault(error):
                raise
            raise LNTrustError(f"{blamed}: {type(error).__name__}: {error}") from error
        site = given[0] if given else named.get("site")
        wrong = next(_misfits(made, right, site), None) if right else None
        if wrong is not None:
            raise LNTrustError(f"{blamed} {wrong}")
        return made

    return call


# -- what verbs may return: each check yields what is wrong, the rest of a sentence that begins with the verb


def _misfits(made: Any, right: Return, site: Any) -> Iterator[str]:
    kind, words, check = right
    if not isinstance(made, kind):
        yield f"returned a {type(made).__name__}; must be {words}"
    yield from check(made, site)


def _tensors(made: dict[Any, Any], _site: Site) -> Iterator[str]:
    for name, value in made.items():
        if not isinstance(name, str):
            yield f"left {name!r} in its state; names must be strings"
        if not isinstance(value, Tensor):
            yield f"left {name!r} in its state, a {type(value).__name__}; must be a tensor"


def _json(made: Any, _site: Site) -> Iterator[str]:
    try:
        json.dumps(made)
    except (TypeError, ValueError, RecursionError) as error:
        yield f"returned what JSON cannot hold ({error}); float(…) and .tolist() make numbers and lists"


def _tables(made: dict[Any, Any], _site: Site) -> Iterator[str]:
    import pyarrow as pa

    for name, columns in made.items():
        try:
            pa.table(columns)
        except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            yield f"returned {name!r}, which is no table ({error}); must be columns of one length, by name"


def _strings(made: list[Any], _site: Site) -> Iterator[str]:
    yield from (f"returned {each!r}; must be a list of strings" for each in made if not isinstance(each, str))


def _pseudo_labels(made: PseudoLabels | None, site: Site) -> Iterator[str]:
    if made is None:
        return
    n, what = site.population.n, "returned PseudoLabels"
    if not (isinstance(made.examples, Ragged) and len(made.examples) == n):
        yield f"{what} whose examples are no list for each of {n} nodes"
    ids, known = made.examples.values, len(site.population.labels) // len(site.population.seeds)
    if ids.dtype.kind not in "iu" or (len(ids) and not 0 <= ids.min() <= ids.max() < known):
        yield f"{what} of examples that there are not; ids must be integers in 0…{known - 1}"
    yield from _no_tensor(f"{what} whose targets", made.targets, (len(ids), site.population.classes))
    yield from _no_tensor(f"{what} whose weight", made.weight, (len(ids),))


def _deployment(made: Deployment, site: Site) -> Iterator[str]:
    variants: Any = made.variants
    if not isinstance(variants, dict | None):
        yield f"returned a Deployment whose variants are a {type(variants).__name__}; must be by name"
    yield from _one_way(made, site)
    for way in (variants or {}).values():
        yield from _misfits(way, (Deployment, "a Deployment", _one_way), site)


def _one_way(way: Any, site: Site) -> Iterator[str]:
    """One way to deploy. Its fields may be of any type: nobody has checked them yet."""
    n, C, what = site.population.n, site.population.classes, "returned a Deployment"
    rows = len(way.members) if isinstance(way.members, Tensor) and way.members.ndim else 0
    per_class = isinstance(way.weights, Tensor) and way.weights.ndim == 2
    expected: dict[str, tuple[tuple[int, ...], torch.dtype | None]] = {
        "members": ((rows, 2), torch.int64),
        "weights": ((rows, C) if per_class else (rows,), site.population.dtype),
        "prior": ((n, C), None),
        "held": ((rows,), torch.bool),
        "certainty": ((n,), None),
    }
    for field, (shape, kind) in expected.items():
        value = getattr(way, field)
        needed = value is not None or field in ("members", "weights")
        if needed and not (field == "certainty" and isinstance(value, float | int)):
            yield from _no_tensor(f"{what} whose {field}", value, shape, kind, site.population.device)
    for field in ("answer", "combine"):
        if getattr(way, field) is not None and not callable(getattr(way, field)):
            yield f"{what} whose {field} is {getattr(way, field)!r}; must be a function"
    if way.combine is not None and way.certainty is not None:
        yield f"{what} with certainty and combine; who combines answers asks all members at once"
    # Weights that are not finite are no mistake of form: the run has diverged.
    if (way.weights < 0).any():
        yield f"{what} with the weight {float(way.weights[way.weights < 0].min()):.3g}; none may be negative"
    each = way.weights.sum(1) if per_class else way.weights
    askers = way.members[:, 0].clamp(0, n - 1)  # the driver refuses others
    empty = askers[each.new_zeros(n).index_add_(0, askers, each)[askers] == 0]
    if len(empty):
        yield f"{what} whose weights for node {int(empty.min())} are all 0; without rows it answers alone"


def _no_tensor(
    what: str, got: Any, shape: tuple[int, ...], dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Iterator[str]:  # fmt: skip
    """Unless it is a tensor of this shape, and of this dtype and on this device where they matter."""
    is_tensor = isinstance(got, Tensor)
    if not (is_tensor and got.shape == shape and dtype in (None, got.dtype)):
        found = f"{got.dtype}{list(got.shape)}" if is_tensor else f"a {type(got).__name__}"
        wanted = f"{dtype or 'a tensor of shape '}{list(shape)}".removeprefix("torch.")
        yield f"{what} is {found.removeprefix('torch.')}; must be {wanted}"
    if device is not None and got.device.type != device.type:
        yield f"{what} lies on {got.device}; must be on {device}"


_STATE: Return = (dict, "a dictionary of tensors", _tensors)
_RETURNS: dict[str, Return | None] = {
    "more_identity": (dict, "a dictionary", _json), "remarks": (list, "a list of strings", _strings),
    "check": None, "start": _STATE, "round": _STATE,
    "pseudo_labels": (PseudoLabels | None, "PseudoLabels or None", _pseudo_labels),
    "finish": _STATE, "choose": _STATE, "deploy": (Deployment, "a Deployment", _deployment),
    "report": (dict, "a dictionary", _json), "tables": (dict, "a dictionary of tables", _tables),
    "pack": _STATE, "unpack": None,
}  # fmt: skip
