"""A finished classifier in an ONNX file: it answers like any other, and does not learn."""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.onnx_files import check_files

DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(uint16)": "uint16", "tensor(int16)": "int16",
    "tensor(int32)": "int32", "tensor(int64)": "int64", "tensor(bool)": "bool",
}  # fmt: skip
_BATCH = 256  # examples in one call, where the model leaves it open
_TRIAL = 4  # examples that the model is tried on
_NEARLY = 0.05  # a quantised softmax does not sum to 1 exactly


class OnnxClassifier:
    """A model in an ONNX file, with the face of a scikit-learn classifier.

    `output` names one of its outputs, needed only where there is a choice. `logits` says whether that still
    needs a softmax; none: see, once, whether it gives probabilities on random inputs.
    """

    def __init__(
        self, file: str | Path, input_shape: tuple[int, ...], classes: int, *,
        output: str | None = None, logits: bool | None = None,
    ) -> None:  # fmt: skip
        self._where = f"onnx: file = {str(file)!r}"
        self._session = _session(Path(file), self._where)
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1 or inputs[0].type not in DTYPES:
            wanted = f"must have one, of {', '.join(DTYPES)}"
            raise LNTrustError(f"{self._where}: has the inputs {_listed(inputs)}; {wanted}")
        (tensor,) = inputs
        self._input, self._dtype = tensor.name, DTYPES[tensor.type]
        self._fixed_batch = _number(tensor.shape[0]) if tensor.shape else None
        self._shape = self._shape_for(tensor.shape, input_shape)
        # Without a name the only one of real numbers: labels may stand beside it.
        real = [each.name for each in outputs if DTYPES.get(each.type, "").startswith("float")]
        fit = [name for name in real if output in (None, name)]
        if len(fit) != 1:
            raise LNTrustError(
                f"{self._where}: output = {output!r}: must name a tensor of real numbers among "
                f"{_listed(outputs)}; of scikit-learn's models, convert with zipmap = False"
            )
        (self._output,) = fit
        self.classes_: Int[ndarray, "C"] = np.arange(classes)
        trial = self._run(np.random.default_rng(0).random((_TRIAL, prod(input_shape))))
        sound = bool((trial >= -1e-6).all() and (abs(trial.sum(1) - 1) < _NEARLY).all())
        self.logits = not sound if logits is None else logits

    def fit(self, x: Any, y: Any, sample_weight: Any = None) -> "OnnxClassifier":
        """Nothing: an ONNX file holds what answers take, and not what training takes."""
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}

    def set_params(self) -> "OnnxClassifier":
        return self

    def predict_proba(self, x: Float[ndarray, "m d"]) -> Float[ndarray, "m C"]:
        """Rows that sum to 1; of numbers that are none, rows of NaN."""
        y = self._run(x)
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.logits:
                y = np.exp(y - y.max(1, keepdims=True))
            return np.asarray(y / y.sum(1, keepdims=True))

    def _run(self, x: Float[ndarray, "m d"]) -> Float[ndarray, "m C"]:
        """What the model gives out for any number of examples."""
        whole = np.dtype(self._dtype).kind in "iu"
        shaped = (np.rint(x) if whole else x).astype(self._dtype).reshape(len(x), *self._shape)
        size = self._fixed_batch or _BATCH
        parts = [self._call(shaped[i : i + size]) for i in range(0, len(x), size)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.classes_)))

    def _call(self, x: Shaped[ndarray, "b *s"]) -> Float[ndarray, "b C"]:
        """One call; a model exported for a fixed batch gets its last one filled up with zeros."""
        size, classes = self._fixed_batch or len(x), len(self.classes_)
        full = np.concatenate([x, np.zeros((size - len(x), *x.shape[1:]), dtype=x.dtype)])
        try:
            (y,) = self._session.run([self._output], {self._input: full})
        except Exception as error:  # onnxruntime's own types derive from Exception alone
            raise LNTrustError(f"{self._where}: does not run on {list(full.shape)}: {error}") from None
        if y.shape[:2] != (size, classes) or y.size != size * classes:
            raise LNTrustError(
                f"{self._where}: output {self._output!r} has shape {list(y.shape)} for {size} examples of "
                f"{classes} classes; must be [{size}, {classes}]: another model, or another output"
            )
        return np.asarray(y[: len(x)], dtype=np.float64).reshape(len(x), classes)

    def _shape_for(self, wanted: Sequence[int | str | None], given: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one example as the model wants it: as given, flat, or with other sides of 1."""
        if not wanted:  # the file does not say
            return given
        sides = tuple(map(_number, wanted[1:]))
        if len(sides) == len(given) and all(s in (None, g) for s, g in zip(sides, given, strict=True)):
            return given
        if len(sides) == 1 and sides[0] in (None, prod(given)):
            return (prod(given),)
        known = tuple(side for side in sides if side is not None)
        same = len(given) == 1 or [s for s in known if s > 1] == [g for g in given if g > 1]
        if len(known) == len(sides) and prod(known) == prod(given) and same:
            return known
        raise LNTrustError(
            f"{self._where}: wants inputs of shape {list(wanted)}, the first for the batch; inputs here have "
            f"shape {list(given)}: choose another view, or another model"
        )


def _session(file: Path, where: str) -> Any:
    """The model, on one thread of the CPU."""
    try:
        import onnxruntime
    except ImportError:
        raise LNTrustError(f"{where}: needs onnxruntime: pip install 'lntrust[fleet]'") from None
    if not file.is_file():
        raise LNTrustError(f"{where}: is not there")
    check_files(file, where)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    options.add_session_config_entry("session.load_model_format", "ONNX")  # and no other that it knows
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own types derive from Exception alone
        raise LNTrustError(f"{where}: not a readable ONNX model: {error}") from None


def _number(side: int | str | None) -> int | None:
    """A side that the model fixes; a name, or nothing, leaves it open."""
    return side if isinstance(side, int) else None


def _listed(tensors: Sequence[Any]) -> str:
    return ", ".join(f"{each.name} ({each.type})" for each in tensors)
