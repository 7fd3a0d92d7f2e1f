"""A checkpoint as bytes: a seal that one flipped bit breaks, how far the history had come, and the state.

The state is loaded without running code from the file. Arrays and scalars of numpy come back with their type, dtype
and shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from rawls.runners.store.checksums import digest

_SEAL = b"rawls checkpoint "
_NUMPY = "numpy dtype"  # the key by which an array is told from a dict


@dataclass(frozen=True)
class Mark:
    """The bytes of a history up to a checkpoint."""

    size: int
    sha256: str


def pack(state: Mapping[str, Any], history: Mark) -> bytes:
    """The file of a checkpoint.

    Args:
        state: tensors, arrays, numbers and texts, and lists and dicts of them.
        history: as it stands.

    Raises:
        TypeError: names what is none of these.
    """
    import torch

    buffer = BytesIO()  # torch reports a full disk as an error of its own, so it does not write the file
    torch.save({"state": _plain(state, "state"), "history": [history.size, history.sha256]}, buffer)
    body = buffer.getbuffer()
    return b"".join([_SEAL, digest(body).encode(), b"\n", body])


def unpack(content: bytes) -> tuple[dict[str, Any], Mark]:
    """The state, on the CPU, and how far the history had come.

    Raises:
        ValueError: the file is not one that `pack` made, bit by bit.
    """
    import torch

    head, _, body = content.partition(b"\n")
    if head != _SEAL + digest(body).encode():
        raise ValueError("the checksum of the checkpoint differs")
    loaded = torch.load(BytesIO(body), map_location="cpu", weights_only=True)
    return _restored(loaded["state"]), Mark(*loaded["history"])


def _plain(value: Any, where: str) -> Any:
    """What torch saves and is willing to load; anything else is refused at once, not when it is needed."""
    import torch

    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject or value.dtype.fields:
            raise TypeError(f"{where} is an array of {value.dtype}: a checkpoint holds arrays of numbers and texts")
        content = torch.from_numpy(np.frombuffer(value.tobytes(), np.uint8).copy())
        scalar = isinstance(value, np.generic)
        return {_NUMPY: value.dtype.str, "shape": list(value.shape), "scalar": scalar, "content": content}
    if isinstance(value, Mapping):
        return {key: _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    if type(value) not in (torch.Tensor, bool, int, float, str, type(None)):
        raise TypeError(f"{where} is a {type(value).__name__}: a checkpoint holds tensors, numbers and texts")
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if _NUMPY in value:
            array = np.ndarray(value["shape"], value[_NUMPY], value["content"].numpy().tobytes()).copy()
            return array[()] if value["scalar"] else array
        return {key: _restored(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_restored(item) for item in value)
    return value
