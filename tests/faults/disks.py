"""A disk that is full for some files: the kernel's own /dev/full takes their place as they are opened to be written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.store import files

EXISTS = Path("/dev/full").exists()


def fill(monkeypatch: pytest.MonkeyPatch, is_full: Callable[[str], bool]) -> None:
    """Let the files whose names are so take no byte, wherever the store writes them."""

    def opened(path: Any, mode: str = "r", **others: Any) -> Any:
        name = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fspath(path)
        if not is_full(os.path.basename(name)):
            return open(path, mode, **others)
        if isinstance(path, int):
            os.close(path)
        return open("/dev/full", mode.replace("x", "w"), **others)

    monkeypatch.setattr(files, "open", opened, raising=False)
