"""A GPU that the CPU plays: what mixes its tensors with the CPU's, or takes them for arrays, fails as it would there.

A tensor that lies on it holds the one that computes. As on a GPU, single numbers and indices may come from the CPU.
Noise is the CPU's, so that results can be compared. What it cannot show: kernels, their order and rounding, streams,
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from rawls.accounting.mechanism import streams
from rawls.models.engines import fused
from rawls.runners.training import setup

NAME = "played"
ROOM = 1 << 28
_aten = torch.ops.aten
_MOVES = {_aten._to_copy.default, _aten.copy_.default}
_INDEXED = {_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default, _aten._index_put_impl_.default}


_Tensor: Any = torch.Tensor  # its methods are replaced by others that mean the same


@cache
def device() -> torch.device:
    """The device, registered once a process: torch 2.13 has an experimental way for those written in Python."""
    _setup_privateuseone_for_python_backend(NAME)
    return torch.device(NAME, 0)


class Played(_Tensor):
    """A tensor on the device."""

    _held: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Played:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=device(),
        )
        made._held = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, other: Played) -> None:
        assert other.shape == self.shape
        self._held = other._held

    def data_ptr(self) -> int:
        return self._held.data_ptr()

    def tolist(self) -> Any:
        return self._held.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("a tensor on a GPU is no numpy array: .cpu() it first")

    __array__ = numpy


class _Everywhere(TorchDispatchMode):
    """Tensors are made on the device too, and sent there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    there = [value for value in tensors if isinstance(value, Played)]
    _check_mixture(func, args, there, [value for value in tensors if not isinstance(value, Played) and value.dim()])
    asked = kwargs.get("device")
    stays = bool(there) if asked is None else torch.device(asked).type == NAME
    if func is _aten.copy_.default:
        stays = isinstance(args[0], Played)
    here = {**kwargs, **({} if asked is None else {"device": torch.device("cpu")})}
    out = func(*tree_map(_held, args), **tree_map(_held, here))
    if torch.Tag.inplace_view in func.tags:
        with no_dispatch():
            func(*args, **kwargs)
    if func is _aten._local_scalar_dense.default:
        return out
    known = {id(value._held): value for value in there}
    return tree_map(lambda value: _outer(value, known, stays=stays), out)


def _check_mixture(func: Any, args: Any, there: list[Played], elsewhere: list[torch.Tensor]) -> None:
    if not there or not elsewhere or func in _MOVES:
        return
    if func in _INDEXED and isinstance(args[0], Played):
        indices = {id(value) for value in tree_flatten(args[1])[0]}
        elsewhere = [value for value in elsewhere if id(value) not in indices]
    if elsewhere:
        shapes = [[tuple(value.shape) for value in values] for values in (there, elsewhere)]
        raise RuntimeError(f"{func} takes tensors of two devices: {shapes[0]} from the GPU, {shapes[1]} from the CPU")


def _held(value: Any) -> Any:
    return value._held if isinstance(value, Played) else value


def _outer(value: Any, known: dict[int, Played], *, stays: bool) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) in known:
        return known[id(value)]
    return Played(value) if stays else value


@contextmanager
def gpu(*, room: int = ROOM) -> Iterator[torch.device]:
    """Runs are trained on the device, which has so many bytes free, and tensors can be made there."""
    drawn = streams._torch_generator
    replaced: dict[str, Callable[..., Any]] = {
        "rawls.runners.training.setup.device_of": lambda config: device(),
        "rawls.runners.training.fleet.device_of": lambda config: device(),
        "rawls.accounting.mechanism.streams._torch_generator": lambda where, seed: drawn(torch.device("cpu"), seed),
        "torch.cuda.mem_get_info": lambda where=None: (room, room),
        # A tensor that wraps another cannot be one of inference mode.
        "torch._C._InferenceMode": lambda on: torch.no_grad() if on else torch.enable_grad(),
    }
    device()
    setup.forget_engines()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in replaced.items():
            patch.setattr(name, value)
        for sizes in (fused.CHUNK_BYTES, fused.LOOK_BYTES):
            patch.setitem(sizes, NAME, ROOM)
        torch._C._set_only_lift_cpu_tensors(True)
        try:
            with _Everywhere():
                yield device()
        finally:
            torch._C._set_only_lift_cpu_tensors(False)
            setup.forget_engines()
            setup.on_device.cache_clear()
