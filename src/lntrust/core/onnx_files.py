"""Which files an ONNX model would have read beside its own, and which of them it may.

A tensor in the model may say that its numbers lie in another file, at some offset. onnxruntime reads any file
in the model's folder for it, also a private key, and the model can then give it out in its answers. So a
model is looked through before it is loaded, with no more of protocol buffers than that takes.
"""

from collections.abc import Iterator
from pathlib import Path

from lntrust.core.errors import LNTrustError

# Where tensors can stand: the kind of a message, then the number of a field → the kind of the message in it.
INSIDE = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {},
}
_KEY, _VALUE = 1, 2  # fields of an entry
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def check_files(file: Path, where: str) -> None:
    """That the model reads nothing but itself and the file of weights that exporters write beside it."""
    try:
        data = file.read_bytes()
        wanted = sorted(set(locations(data)))
    except (OSError, ValueError) as error:
        raise LNTrustError(f"{where}: not a readable ONNX model: {error}") from None
    allowed = [weights.name for weights in weights_of(file)]
    for name in wanted:
        if name not in allowed:
            raise LNTrustError(
                f"{where}: would read the file {name!r}; its weights may lie in itself, or beside it in "
                f"{' or '.join(allowed)}: save it so, with onnx.save(…, location = {allowed[0]!r})"
            )
        weights = file.parent / name
        # A second name of a file is a link, too: one of node.key reads as node.key.
        if weights.is_symlink() or not weights.is_file() or weights.stat().st_nlink > 1:
            raise LNTrustError(f"{where}: its weights, {weights}, must be a file, and no link")


def weights_of(file: Path) -> list[Path]:
    """Where a model's weights may lie, if not in itself: the names that exporters give."""
    return [file.parent / name for name in (f"{file.name}.data", f"{file.name}_data", f"{file.stem}.data")]


def locations(model: bytes) -> Iterator[str]:
    """Every file that a tensor of the model names, wherever in the model that tensor stands."""
    left = [("model", memoryview(model))]
    while left:
        kind, message = left.pop()
        keys, values = list[str](), list[str]()
        for number, content in _fields(message):
            if kind == "entry" and number in (_KEY, _VALUE):
                (keys if number == _KEY else values).append(str(content, "utf-8", "replace"))
            elif number in INSIDE[kind]:
                left.append((INSIDE[kind][number], content))
        if "location" in keys:  # a field given twice counts once, the last: here each of them does
            yield from values


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields of a message that have a length: other messages, text, bytes. Numbers are passed over."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        tag, wire_type = tag & 0xFFFF_FFFF, tag & 7  # of a tag, readers keep 32 bits
        if wire_type == _VARINT:
            _, at = _varint(message, at)
        elif wire_type in (_EIGHT, _FOUR):
            at += 8 if wire_type == _EIGHT else 4
        elif wire_type == _BYTES:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("it is cut short")
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError("it is none")
    if at > len(message):
        raise ValueError("it is cut short")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first; and where the next thing begins."""
    value = 0
    for place in range(10):
        if at + place >= len(message):
            raise ValueError("it is cut short")
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("it is none")
