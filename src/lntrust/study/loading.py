"""Studies: TOML files over the settings, with inheritance and overrides from the command line."""

import tomllib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from lntrust.core.errors import LNTrustError
from lntrust.core.text import did_you_mean
from lntrust.study.settings import Settings, Study

__all__ = ["Study", "describe", "explain", "list_studies", "load_study", "value_of"]


def list_studies() -> dict[str, Path]:
    """The studies that ship with lntrust, by name."""
    folder = Path(str(resources.files("lntrust") / "studies"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_study(name: str | Path, overrides: Sequence[str] = ()) -> Study:
    """A study by its name or its file, with `path.to.field=value` overrides on top.

    >>> load_study("digits", ["graph.nodes=8"]).graph.nodes
    8
    """
    table = _read(str(name), trail=())
    for override in overrides:
        _set(table, override)
    try:
        return Study.model_validate(table)
    except ValidationError as error:
        raise LNTrustError(explain(error, f"study {name}", Study)) from None


def _read(name: str, trail: tuple[str, ...], base: Path | None = None) -> dict[str, Any]:
    """The study's table, merged over the one it inherits from."""
    if name in trail:
        raise LNTrustError(f"study {trail[0]}: inherits in a circle: {' → '.join((*trail, name))}")
    path = _find(name, base)
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LNTrustError(f"{path}: not a readable TOML file: {error}") from None
    parent = table.pop("inherits", None)
    if parent is not None and not isinstance(parent, str):
        raise LNTrustError(f"{path}: inherits = {parent!r}: must be the name or path of one study")
    table.setdefault("name", path.stem)
    if parent is None:
        return table
    return _merged(_read(parent, (*trail, name), path.parent), table)


def _find(name: str, base: Path | None) -> Path:
    shipped = list_studies()
    if name in shipped:
        return shipped[name]
    path = Path(name)
    # What a file inherits from is looked for beside it first, wherever the command was given.
    for candidate in (base / path if base else path, path):
        if candidate.suffix == ".toml" and candidate.is_file():
            return candidate
    hint = did_you_mean(name, shipped)
    raise LNTrustError(f"study {name}: {hint}Neither a .toml file nor one of {', '.join(shipped)}")


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables merge field by field; everything else, lists included, is replaced."""
    out = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if both else value
    return out


def _set(table: dict[str, Any], override: str) -> None:
    """Carry out `path.to.field=value`."""
    path, sign, text = override.partition("=")
    if not sign or not path:
        raise LNTrustError(f"--set {override}: must look like path.to.field=value")
    *parents, last = path.strip().split(".")
    place: Any = table
    for part in parents:
        key = _key(place, part, override)
        place = place[key] if isinstance(place, list) else place.setdefault(key, {})
        if not isinstance(place, dict | list):
            raise LNTrustError(f"--set {override}: {part} is not a table of settings")
    place[_key(place, last, override)] = value_of(text)


def value_of(text: str) -> Any:
    """What a value on the command line means: TOML, or a bare word.

    >>> value_of("0.5"), value_of("ring"), value_of("none")
    (0.5, 'ring', None)
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None if text == "none" else text


def _key(place: dict[str, Any] | list[Any], part: str, override: str) -> Any:
    """What a part of a path means there: a field's name or, in a list, the number of an entry."""
    if isinstance(place, dict):
        return part
    if not part.isdecimal() or int(part) >= len(place):
        raise LNTrustError(f"--set {override}: no entry {part}; entries are 0…{len(place) - 1}")
    return int(part)


def explain(error: ValidationError, source: str, model: type[BaseModel]) -> str:
    """Pydantic's findings about a model, a line each: source, field, value, what would be right."""
    lines = []
    for item in error.errors():
        path = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = _fields_at(model, item["loc"][:-1])
            hint = did_you_mean(str(item["loc"][-1]), known).rstrip() or f"known here: {', '.join(known)}"
            lines.append(f"{source}: unknown field {path}; {hint}")
        elif item["type"] == "missing":
            lines.append(f"{source}: {path} is missing")
        elif item["type"] == "value_error":
            lines.append(": ".join(filter(None, [source, path, item["msg"].removeprefix("Value error, ")])))
        else:
            lines.append(f"{source}: {path} = {item['input']!r}: {item['msg'].lower()}")
    return "\n".join(lines)


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    for part in location:
        if isinstance(part, str):
            inner = model.model_fields[part].annotation
            kinds = [inner, *get_args(inner)]
            model = next(each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel))
    return list(model.model_fields)


def describe(settings: Settings, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """(path, value, description) of every field, depth first, for `lntrust studies NAME`."""
    for name, field in type(settings).model_fields.items():
        value, path = getattr(settings, name), f"{prefix}{name}"
        if isinstance(value, Settings):
            yield from describe(value, f"{path}.")
        elif isinstance(value, list) and value and isinstance(value[0], Settings):
            for index, item in enumerate(value):
                yield from describe(item, f"{path}.{index}.")
        else:
            yield path, value, field.description or ""
