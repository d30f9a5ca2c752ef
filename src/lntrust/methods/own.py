"""Methods of the user's own: what fails in them, or what they return, is reported as theirs.

The verbs that their author has written are called through one thin wrapper. An exception that shows no line
of the author's (one that shows it speaks for itself) and a return that nobody can use become an error which
names the class, the verb and what was wrong.
"""

import inspect
import json
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.plugins import users_fault
from lntrust.learners.population import PseudoLabels
from lntrust.methods.base import Deployment, Method, Site
from lntrust.network import WireFormat
from lntrust.study.settings import Settings
from lntrust.world.ragged import Ragged


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
    for verb, check in _CHECKS.items():
        if _of_its_author(method, verb):
            check = _anything if packs and check is _state and verb != "pack" else check
            setattr(method, verb, _guarded(getattr(method, verb), f"method {name}: {verb}", check))
    return method


def check_verbs(method: Method[Any], name: str) -> None:
    """Refuse, before hours of work, verbs of the user's that cannot be called as they will be."""
    inner = getattr(method, "inner", method)  # whose deployment another's takes the place of
    for verb in filter(lambda verb: _of_its_author(inner, verb), _CHECKS):
        usual = inspect.signature(getattr(Method, verb)).parameters.values()
        given = [each.name for each in usual if each.default is each.empty][1:]  # without self
        try:
            inspect.signature(getattr(inner, verb)).bind(*given)
        except (TypeError, ValueError) as error:
            called = f"{verb}({', '.join(given)})"
            raise LNTrustError(f"method {name}: {verb} cannot be called as {called}: {error}") from None
    for field, kind in (("wire_format", WireFormat), ("final_rounds", int)):
        found = getattr(inner, field)
        if not isinstance(found, kind):
            raise LNTrustError(f"method {name}: {field} is {found!r}; must be of type {kind.__name__}")


def _of_its_author(method: Method[Any], verb: str) -> bool:
    return str(getattr(getattr(type(method), verb), "__module__", "")).partition(".")[0] != "lntrust"


def _guarded(verb: Callable[..., Any], blamed: str, check: Callable[[Any, Any], None]) -> Callable[..., Any]:
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
        try:
            check(made, given[0] if given else named.get("site"))
        except _UnusableError as wrong:
            raise LNTrustError(f"{blamed} {wrong}") from None
        return made

    return call


# -- what verbs may return ------------------------------------------------------------------------


class _UnusableError(Exception):
    """What is wrong with a return: the rest of a sentence that begins with the verb."""


def _must(fine: bool, wrong: str) -> None:
    if not fine:
        raise _UnusableError(wrong)


def _must_be(kind: type, words: str, made: Any) -> None:
    _must(isinstance(made, kind), f"returned a {type(made).__name__}; must be {words}")


def _anything(_made: Any, _site: Site) -> None:
    pass


def _state(made: Any, _site: Site) -> None:
    _must_be(dict, "a dictionary of tensors", made)
    for name, value in made.items():
        _must(isinstance(name, str), f"left {name!r} in its state; names must be strings")
        found = f"left {name!r} in its state, a {type(value).__name__}"
        _must(isinstance(value, Tensor), f"{found}; must be a tensor")


def _json(made: Any, _site: Site) -> None:
    _must_be(dict, "a dictionary", made)
    try:
        json.dumps(made)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "float(…) and .tolist() make numbers and lists"
        raise _UnusableError(f"returned what JSON cannot hold ({error}); {hint}") from None


def _tables(made: Any, _site: Site) -> None:
    import pyarrow as pa

    _must_be(dict, "a dictionary of tables", made)
    for name, columns in made.items():
        try:
            pa.table(columns)
        except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            what = f"returned {name!r}, which is no table ({error}); must be columns of one length, by name"
            raise _UnusableError(what) from None


def _remarks(made: Any, _site: Site) -> None:
    fine = isinstance(made, list) and all(isinstance(each, str) for each in made)
    _must(fine, f"returned a {type(made).__name__}; must be a list of strings")


def _pseudo_labels(made: Any, site: Site) -> None:
    if made is None:
        return
    _must_be(PseudoLabels, "PseudoLabels or None", made)
    n, what = site.population.n, "returned PseudoLabels"
    listed = isinstance(made.examples, Ragged) and len(made.examples) == n
    _must(listed, f"{what} whose examples are no list for each of {n} nodes")
    ids, known = made.examples.values, len(site.population.labels) // len(site.population.seeds)
    there = ids.dtype.kind in "iu" and (not len(ids) or 0 <= ids.min() <= ids.max() < known)
    _must(there, f"{what} of examples that there are not; ids must be integers in 0…{known - 1}")
    _tensor(f"{what} whose targets", made.targets, (len(ids), site.population.classes))
    _tensor(f"{what} whose weight", made.weight, (len(ids),))


def _deployment(made: Any, site: Site) -> None:
    _one_way(made, site)
    variants = made.variants or {}
    kind = type(variants).__name__
    by_name = isinstance(variants, dict)
    _must(by_name, f"returned a Deployment whose variants are a {kind}; must be by name")
    for way in variants.values():
        _one_way(way, site)


def _one_way(way: Any, site: Site) -> None:
    """One way to deploy. Its fields may be of any type: nobody has checked them yet."""
    _must_be(Deployment, "a Deployment", way)
    n, classes, dtype = site.population.n, site.population.classes, site.population.dtype
    rows = len(way.members) if isinstance(way.members, Tensor) and way.members.ndim else 0
    per_class = isinstance(way.weights, Tensor) and way.weights.ndim == 2
    expected: dict[str, tuple[tuple[int, ...], torch.dtype | None]] = {
        "members": ((rows, 2), torch.int64),
        "weights": ((rows, classes) if per_class else (rows,), dtype),
        "prior": ((n, classes), None),
        "held": ((rows,), torch.bool),
        "certainty": ((n,), None),
    }
    for field, (shape, kind) in expected.items():
        value = getattr(way, field)
        given = value is not None or field in ("members", "weights")
        if given and not (field == "certainty" and isinstance(value, float | int)):
            _tensor(f"returned a Deployment whose {field}", value, shape, kind, site.population.device)
    callable_ = way.answer is None or callable(way.answer)
    _must(callable_, f"returned a Deployment whose answer is {way.answer!r}; must be a function")
    # Weights that are not finite are no mistake of form: the run has diverged.
    negative = way.weights[way.weights < 0].tolist()
    what = f"returned a Deployment with the weight {min(negative, default=0):.3g}"
    _must(not negative, f"{what}; none may be negative")
    each = way.weights.sum(1) if per_class else way.weights
    askers = way.members[:, 0].clamp(0, n - 1)  # the driver refuses others
    empty = askers[each.new_zeros(n).index_add_(0, askers, each)[askers] == 0].tolist()
    what = f"returned a Deployment whose weights for node {min(empty, default=0)} are all 0"
    _must(not empty, f"{what}; without rows it answers alone")


def _tensor(
    what: str, got: Any, shape: tuple[int, ...], dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> None:  # fmt: skip
    """That it is a tensor of this shape, and of this dtype and on this device where they matter."""
    found = f"a {type(got).__name__}"
    if isinstance(got, Tensor):
        found = f"{got.dtype}{list(got.shape)}".removeprefix("torch.")
    fits = isinstance(got, Tensor) and got.shape == shape and dtype in (None, got.dtype)
    wanted = f"{dtype or 'a tensor of shape '}{list(shape)}".removeprefix("torch.")
    _must(fits, f"{what} is {found}; must be {wanted}")
    there = device is None or got.device.type == device.type
    _must(there, f"{what} lies on {got.device}; must be on {device}")


_CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "more_identity": _json, "remarks": _remarks, "check": _anything, "start": _state, "round": _state,
    "pseudo_labels": _pseudo_labels, "finish": _state, "choose": _state, "deploy": _deployment,
    "report": _json, "tables": _tables, "pack": _state, "unpack": _anything,
}  # fmt: skip
