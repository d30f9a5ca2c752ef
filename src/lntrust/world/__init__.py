"""Who exists, who knows whom, and whose data."""

from lntrust.world.data.datasets import Coded, Dataset, View, check_finite, load_dataset
from lntrust.world.partition import Partition, class_table, groups
from lntrust.world.ragged import Ragged
from lntrust.world.world import SealedLabels, World, build_world, class_distribution, side_by_side

__all__ = [
    "Coded", "Dataset", "Partition", "Ragged", "SealedLabels", "View", "World", "build_world", "check_finite",
    "class_distribution", "class_table", "groups", "load_dataset", "side_by_side",
]  # fmt: skip
