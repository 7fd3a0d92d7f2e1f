"""Kernels with a fault in them, which the check at load must find."""

from pathlib import Path
from types import ModuleType

import pytest

from rawls.models.engines.kernels import compiled


def assert_distrusted(
    module: ModuleType,
    right: str,
    wrong: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The module's kernel is not used with `wrong` in place of `right`, in its source or one of the headers beside."""
    if module.kernel() is None:
        pytest.skip("no compiler and processor for the kernel")
    files = {path: path.read_text("utf-8") for path in (module._SOURCE, *module._SOURCE.parent.glob("*.h"))}
    assert sum(text.count(right) for text in files.values()) == 1
    for path, text in files.items():
        (folder / path.name).write_text(text.replace(right, wrong), "utf-8")
    monkeypatch.setattr(module, "_SOURCE", folder / module._SOURCE.name)
    monkeypatch.setattr(compiled, "_loaded", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    assert module.kernel.__wrapped__() is None
    assert "computes wrongly" in caplog.text
    assert compiled.loaded() == {}
