"""Lets `import torchvision` work beside a torch build that its compiled extension was not made for.

Torchvision registers shape rules for the operators nms and qnms when it is imported, and fails if its
extension could not declare them. When, and only when, that extension cannot load, the two schemas are
declared here; calling the operators themselves still fails, and nothing of ours does. Call
`declare_missing()` before `import torchvision`.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util

import torch

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")


@functools.cache
def declare_missing() -> torch.library.Library | None:
    """Declare the schemas if they are needed; returns the library that holds them, which must stay alive.

    Raises:
        ModuleNotFoundError: torchvision is not installed.
    """
    if _extension_loads():
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _OPERATORS:
        library.define(name + _SIGNATURE)
    return library


def _extension_loads() -> bool:
    """Load torchvision's extension as torchvision itself would (loading it twice is harmless)."""
    package = importlib.util.find_spec("torchvision")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("torchvision is not installed; install the build that matches your torch")
    finder = importlib.machinery.FileFinder(
        package.submodule_search_locations[0],
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
    )
    extension = finder.find_spec("_C")
    if extension is None or extension.origin is None:
        return False
    try:
        torch.ops.load_library(extension.origin)
    except OSError:
        return False
    return True
