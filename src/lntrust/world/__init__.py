"""Who exists, who knows whom, and whose data."""

from lntrust.world.data.datasets import Dataset, load_dataset
from lntrust.world.ragged import Ragged
from lntrust.world.world import World, build_world, side_by_side

__all__ = ["Dataset", "Ragged", "World", "build_world", "load_dataset", "side_by_side"]
