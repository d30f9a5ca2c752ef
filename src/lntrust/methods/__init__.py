"""One file per method. A method is found by its name; a user's own by `package.module:Name`."""

from lntrust.methods.base import Deployment, Method, Site, State
from lntrust.methods.registry import find_method, list_methods

__all__ = ["Deployment", "Method", "Site", "State", "find_method", "list_methods"]
