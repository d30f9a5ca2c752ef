"""Studies: every setting with its meaning, TOML files, inheritance and overrides."""

from lntrust.study.loading import describe, explain, list_studies, load_study, value_of
from lntrust.study.settings import Later, MethodSettings, Range, Settings, Study, identity_fields, once_each

__all__ = [
    "Later", "MethodSettings", "Range", "Settings", "Study", "describe", "explain", "identity_fields",
    "list_studies", "load_study", "once_each", "value_of",
]  # fmt: skip
