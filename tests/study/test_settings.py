"""Every setting is documented, where it is declared, and shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, Field

from lntrust import LNTrustError, load_study
from lntrust.experiment.driver import Runs
from lntrust.learners.views import Views
from lntrust.methods import list_methods
from lntrust.study.loading import describe
from lntrust.study.settings import CUT, Later, Settings, Study, identity_fields, recorded


def tables_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The tables that an annotation mentions, inside lists and unions too, and those inside of these."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from tables_in(field.annotation)
    for inner in get_args(annotation):
        yield from tables_in(inner)


TABLES = [*tables_in(Study), *(method.settings_class for method in list_methods().values())]


@pytest.mark.parametrize("table", dict.fromkeys(TABLES), ids=lambda table: table.__name__)
def test_a_table_says_what_its_fields_mean_and_lets_no_other_pass(table: type[BaseModel]) -> None:
    assert issubclass(table, Settings)
    assert table.model_config["extra"] == "forbid"
    for name, field in table.model_fields.items():
        inner = next(tables_in(field.annotation), None)
        assert len(field.description or (inner and inner.__doc__) or "") > 5, name


def test_describe_tells_the_meaning_and_the_value_in_force_of_every_field() -> None:
    described = describe(load_study("digits", ["graph.nodes=8"]))
    rows = {path: (value, meaning) for path, value, meaning in described}
    assert (rows["graph.nodes"][0], rows["population.learners.3.kind"][0]) == (8, "forest")
    assert all(meaning for _, meaning in rows.values())
    tables = [table for table in dict.fromkeys(tables_in(Study)) if table is not Study]
    names = {name for table in tables for name in table.model_fields} - {"learners"}
    assert names <= {path.rpartition(".")[2] for path in rows}


def test_what_is_kept_of_runs_names_what_is_gone() -> None:
    kept = recorded(load_study("digits"))["partition"]
    assert kept.items() >= CUT.items()
    assert load_study("digits", [f"partition.{k}={'none' if v is None else v}" for k, v in CUT.items()])


class Grown(Settings):
    """One setting that was always there, and two that came later."""

    old: int = Field(1, description="always there")
    young: Annotated[int | None, Later()] = Field(None, ge=1, description="came later")
    flag: Annotated[bool, Later()] = Field(False, description="came later, too")


class Outer(Settings):
    """A table with a table in it."""

    inner: Grown = Grown()


def test_younger_settings_at_their_default_go_without_saying() -> None:
    assert identity_fields(Outer()) == {"inner": {"old": 1}}
    assert identity_fields(Outer(inner=Grown(flag=True))) == {"inner": {"old": 1, "flag": True}}
    assert identity_fields(Grown()) == {"old": 1}
    assert identity_fields(Grown(old=2, young=None, flag=False)) == {"old": 2}
    assert identity_fields(Grown(young=3)) == {"old": 1, "young": 3}
    assert identity_fields(Grown(flag=True)) == {"old": 1, "flag": True}


class Holding(Settings):
    """Tables in a table."""

    one: Grown = Field(Grown(), description="a table")
    several: list[Grown] = Field([], description="a list of tables")


def test_in_tables_inside_of_tables_too() -> None:
    assert identity_fields(Holding()) == {"one": {"old": 1}, "several": []}
    kept = identity_fields(Holding(one=Grown(young=3), several=[Grown(), Grown(flag=True)]))
    assert kept == {"one": {"old": 1, "young": 3}, "several": [{"old": 1}, {"old": 1, "flag": True}]}


class TestTheSameSeedTwice:
    """Would give ± 0.000, and is refused."""

    @pytest.mark.parametrize(
        "words",
        [
            ["run", "digits", "--seed", "3", "--seed", "3"], ["run", "digits", "--set", "seeds=[3,0,3]"],
            ["sweep", "digits", "--seed", "0,3,2-4"], ["sweep", "digits", "--seed", "0-3", "--seed", "3"],
            ["sweep", "digits", "--set", "seeds=[3,3]"], ["bench", "speed", "--seed", "3", "--seed", "3"],
        ],
    )  # fmt: skip
    def test_on_the_command_line(self, words: list[str], lntrust: Any, tmp_path: Path) -> None:
        got = lntrust(*words, "--out", tmp_path / "out")
        assert (got.code, got.out) == (2, "")
        assert "3: is given twice; each seed can be given once" in got.err
        assert not (tmp_path / "out").exists()

    def test_from_python_and_of_methods(self, tiny: Any, views: Views) -> None:
        with pytest.raises(LNTrustError, match="seeds 4: is given twice"):
            Runs(tiny(), "independent", [4, 5, 4], views)
        with pytest.raises(LNTrustError, match="compare uniform: is given twice; each method can be"):
            tiny('compare=["uniform","lntrust","uniform"]')
