"""A module that a Python program holds: what `rawls.fit` trains.

It never leaves the process that holds it; a configuration names it by a digest of its code, its shape and its weights.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

Factory = Callable[[], nn.Module]
_HELD: dict[str, nn.Module | Factory] = {}


@dataclass(frozen=True, kw_only=True)
class Given:
    """A module, whose weights are where training begins; or what makes one, whose weights then follow from the seed.

    Args:
        content: its digest.
    """

    content: str

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        if self.content not in _HELD:
            raise ValueError("model=given is a module of another process: call rawls.fit there, or again with it")
        held = _HELD[self.content]
        return copy.deepcopy(held) if isinstance(held, nn.Module) else held()


def hold(model: nn.Module | Factory) -> Given:
    """Have this process hold a module or a factory."""
    digest = hashlib.sha256()
    if isinstance(model, nn.Module):
        digest.update(repr(model).encode())
        for kind in dict.fromkeys(type(part) for part in model.modules()):
            digest.update(f"{kind.__module__}.{kind.__qualname__} {_source_of(kind)}".encode())
        for name, tensor in model.state_dict().items():
            digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    else:
        digest.update(f"{getattr(model, '__qualname__', model)} {_source_of(model)}".encode())
    spec = Given(content=digest.hexdigest())
    _HELD[spec.content] = model
    return spec


def is_held(spec: Given) -> bool:
    """Whether this process holds it."""
    return spec.content in _HELD


def _source_of(code: object) -> str:
    """What a class or function says; nothing where that cannot be read."""
    try:
        return inspect.getsource(code)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""
