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
from lntrust.study.settings import Later, Settings, Study, identity_fields


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation mentions, inside lists and unions too."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def all_fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}", field.description
        for inner in models_in(field.annotation):
            yield from all_fields(inner, f"{prefix}{name}.")


FIELDS = dict(all_fields(Study))


def test_every_field_says_what_it_means() -> None:
    assert {"graph.nodes", "partition.skew", "population.learners.view", "training.lr"} <= set(FIELDS)
    assert [field for field, meaning in FIELDS.items() if len(meaning or "") <= 5] == []
    for method in list_methods().values():
        assert all(field.description for field in method.settings_class.model_fields.values())


def test_describe_covers_every_field() -> None:
    shown = {
        ".".join(part for part in path.split(".") if not part.isdecimal()): meaning
        for path, _, meaning in describe(load_study("digits"))
    }
    leaves = {path for path in FIELDS if not any(other.startswith(f"{path}.") for other in FIELDS)}
    assert set(shown) == leaves
    assert all(shown.values())


def models(model: type[BaseModel] = Study) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for inner in models_in(field.annotation):
            yield from models(inner)


@pytest.mark.parametrize("model", list(dict.fromkeys(models())), ids=lambda model: model.__name__)
def test_no_table_lets_an_unknown_field_pass(model: type[BaseModel]) -> None:
    assert issubclass(model, Settings)
    assert model.model_config["extra"] == "forbid"


class Grown(Settings):
    """One setting that was always there, and two that came later."""

    old: int = Field(1, description="always there")
    young: Annotated[int | None, Later()] = Field(None, ge=1, description="came later")
    flag: Annotated[bool, Later()] = Field(False, description="came later, too")


class TestIdentityFields:
    def test_younger_settings_at_their_default_go_without_saying(self) -> None:
        assert identity_fields(Grown()) == {"old": 1}
        assert identity_fields(Grown(old=2, young=None, flag=False)) == {"old": 2}
        assert identity_fields(Grown(young=3)) == {"old": 1, "young": 3}
        assert identity_fields(Grown(flag=True)) == {"old": 1, "flag": True}

    @pytest.mark.parametrize("method", list_methods())
    def test_of_methods_without_younger_settings_everything_is_told(self, method: str) -> None:
        cls = list_methods()[method].settings_class
        younger = {k for k, f in cls.model_fields.items() if any(isinstance(m, Later) for m in f.metadata)}
        assert set(identity_fields(cls())) == set(cls.model_fields) - younger
        assert bool(younger) == (method == "lntrust")


class TestTheSameSeedTwice:
    """Would give ± 0.000, and is refused."""

    @pytest.mark.parametrize(
        "words",
        [
            ["run", "--seed", "3", "--seed", "3"], ["run", "--set", "seeds=[3,0,3]"],
            ["sweep", "--seed", "0,3,2-4"], ["sweep", "--seed", "0-3", "--seed", "3"],
            ["sweep", "--set", "seeds=[3,3]"],
        ],
    )  # fmt: skip
    def test_on_the_command_line(
        self, words: list[str], lntrust: Any, tiny_file: Path, tmp_path: Path
    ) -> None:
        got = lntrust(words[0], tiny_file, *words[1:], "--out", tmp_path / "out")
        assert (got.code, got.out) == (2, "")
        assert "3: is given twice; each seed can be given once" in got.err
        assert not (tmp_path / "out").exists()

    def test_where_speed_is_measured(self, lntrust: Any, tmp_path: Path) -> None:
        got = lntrust("bench", "speed", "--seed", "3", "--seed", "3", "--out", tmp_path / "out")
        assert got.code == 2
        assert "--seed 3: is given twice" in got.err

    def test_a_study_compares_each_method_once_too(self, tiny: Any) -> None:
        with pytest.raises(LNTrustError, match="compare uniform: is given twice; each method can be"):
            tiny('compare=["uniform","lntrust","uniform"]')

    def test_from_python(self, tiny: Any, views: Views) -> None:
        with pytest.raises(LNTrustError, match="seeds 4: is given twice"):
            Runs(tiny(), "independent", [4, 5, 4], views)
