"""Where a run was made: code, package versions, device. No paths and no host names: results are published."""

import importlib.metadata
import platform
import subprocess
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# What can change a run's numbers; notes, tests and tables cannot.
_CODE = ("accounting", "algorithms", "conf", "datasets", "models", "runners", "src", "pyproject.toml")
_PACKAGES = (
    "torch",
    "torchvision",
    "opacus",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "dp-accounting",
    "hydra-core",
    "omegaconf",
    "wandb",
)


def describe(device: str) -> dict[str, Any]:
    """What environment.json says of this process; call it once the process is prepared.

    Args:
        device: what torch calls it (`cpu`, `cuda`, `cuda:1`); or `none`, if nothing was trained.
    """
    import torch

    from rawls.models.engines.kernels import compiled

    sha, dirty = code_version(ROOT)
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_sha": sha,
        "git_dirty": dirty,
        "versions": {"python": platform.python_version(), **_versions(), **compiled.loaded()},
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": device,
        "device_name": torch.cuda.get_device_name(device) if device.startswith("cuda") else _cpu_name(),
        "cuda": torch.version.cuda,
        "num_threads": torch.get_num_threads(),
    }


@lru_cache
def code_version(root: Path) -> tuple[str | None, bool | None]:
    """The commit of the repository at `root`, and whether its code differs from it; (None, None) without one.

    An installed copy may lie inside someone else's repository: that one's commit says nothing of us.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    sha = _git(root, "rev-parse", "--verify", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", *_CODE)
    if top is None or sha is None or changes is None or Path(top).resolve() != root.resolve():
        return None, None
    return sha, changes != ""


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@lru_cache
def _versions() -> dict[str, str]:
    """Versions of the packages that are installed."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@lru_cache
def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
