"""Studies: every setting with its meaning, TOML files, inheritance and overrides."""

from lntrust.study.loading import list_studies, load_study
from lntrust.study.settings import MethodSettings, Study

__all__ = ["MethodSettings", "Study", "list_studies", "load_study"]
