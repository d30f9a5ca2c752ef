"""Live nodes on a real network. Needs the extra `fleet`, but for a first NODE.toml."""

from importlib.util import find_spec

from lntrust.core.errors import LNTrustError

_EXTRA = ("cryptography", "httptools", "prometheus_client", "starlette", "urllib3", "uvicorn", "zenoh")


def need_extra() -> None:
    """An error that says what to install, if something is missing."""
    if not all(map(find_spec, _EXTRA)):
        raise LNTrustError("live nodes need the extra fleet: pip install 'lntrust[fleet]'")
