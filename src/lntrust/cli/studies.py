"""`lntrust studies`, `methods` and `graph`: what can be run, before it is run."""

import sys
from pathlib import Path
from typing import Annotated

from rich.markup import escape
from rich.table import Column, Table
from typer import Argument, Option

from lntrust.cli import options
from lntrust.cli.console import out, say
from lntrust.core.errors import LNTrustError
from lntrust.core.text import did_you_mean
from lntrust.study.loading import describe, list_studies, load_study


def studies(
    name: Annotated[str | None, Argument(help="A study's name or .toml file; without it, the list.")] = None,
    set_: options.Sets = None,
    debug: options.Debug = False,
) -> None:
    """List the studies, or show every field of one: its value and what it means.

    Your own study is a TOML file with the fields that differ, and `inherits = "NAME"` for the rest.
    """
    if name is None:
        table = Table("study", "data", "nodes", "about")
        for each in list_studies():
            s = load_study(each)
            table.add_row(each, s.data.dataset, str(s.graph.nodes), s.about)
    else:
        field, value = Column("field", no_wrap=True), Column("value", overflow="fold", max_width=16)
        table = Table(field, value, "meaning", title=escape(name))
        for path, given, meaning in describe(load_study(name, set_ or [])):
            table.add_row(path, "none" if given is None else escape(str(given)), escape(meaning))
    out.print(table)


def methods(
    name: Annotated[str | None, Argument(help="A method's name; without it, the list.")] = None,
    debug: options.Debug = False,
) -> None:
    """List the methods, or show one: what it does, what it exchanges, its settings."""
    from lntrust.experiment.tune import search_space
    from lntrust.methods import list_methods
    from lntrust.methods.lntrust.presets import OF, PRESETS, method_of, names

    known = list_methods()
    if name is None:
        table = Table("method", "uses validation", "about")
        for each, cls in known.items():
            table.add_row(each, "yes" if cls.uses_validation else "no", cls.about)
        for each, preset in PRESETS.items():
            table.add_row(f"{OF}+{each}", "yes", f"preset of {OF}: {preset.about}")
        out.print(table)
        return
    plain, chosen = method_of(name)
    if plain not in known:
        every = [*known, *names()]
        raise LNTrustError(f"method {name}: {did_you_mean(name, every)}Must be one of {', '.join(every)}")
    cls = known[plain]
    say((sys.modules[cls.__module__].__doc__ or "").strip())
    quoted = f'"{name}"' if chosen else name
    table = Table("setting", "default", "tuned in", "meaning", title=escape(f"[methods.{quoted}]"))
    ranges = {} if plain == "centralized" else search_space(cls.settings_class)
    for field, info in cls.settings_class.model_fields.items():
        default = "none" if info.default is None else str(info.default)
        if chosen and field in chosen.settings:
            default = f"→ {chosen.settings[field]}"
        table.add_row(field, default, str(ranges.get(field, "")), info.description)
    if cls.settings_class.model_fields:
        out.print(table)


def graph(
    study: options.StudyName = "digits",
    seed: options.Seed = None,
    set_: options.Sets = None,
    data: options.DataDir = None,
    to: Annotated[
        Path | None, Option("--out", "-o", help="PNG, PDF or SVG file. Default: STUDY-seedS.png here.")
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Draw a study's topology: degrees as colours, architectures as shapes, data sizes as areas."""
    from lntrust.experiment.store.worlds import describe_world
    from lntrust.report.figures import draw_topology
    from lntrust.world import build_world, load_dataset

    chosen, seed_ = load_study(study, set_ or []), options.seed_of(seed)
    path = to or Path(f"{chosen.name}-seed{seed_}.png")
    options.a_file(path, ".png", ".pdf", ".svg")
    dataset = load_dataset(chosen.data.dataset, data)
    world = build_world(chosen, dataset, seed_)
    draw_topology(describe_world(world, dataset), f"{chosen.name}, seed {seed_}", path)
    names = [learner.name for learner in chosen.population.learners]
    counts = ", ".join(f"{(world.kinds == k).sum()} {name}" for k, name in enumerate(names))
    edges, degrees = world.graph.number_of_edges(), world.degrees
    say(f"{path}: {world.n} nodes, {edges} edges, degree {degrees.min()}–{degrees.max()}; {counts}")
