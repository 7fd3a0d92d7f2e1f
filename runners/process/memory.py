"""How much memory there is, what this process takes of it, and what to do when it runs out.

A fleet that does not fit goes on in halves, from its checkpoints. A run that does not fit alone fails with the way out.
"""

import ctypes
import errno
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rawls.runners.process.worker import Report, TrainFleet
    from rawls.runners.store.results_store import RunFolder

WAY_OUT = "use engine=opacus_ghost or engine=opacus_hooks with a smaller physical_batch, or another device"
TOO_LARGE = f"the run does not fit into memory, even alone: {WAY_OUT}"
# torch and what it calls say so in a RuntimeError.
_PHRASES = ("out of memory", "can't allocate memory", "std::bad_alloc", "ALLOC_FAILED")


def ran_out(error: BaseException) -> bool:
    """Whether memory ran out, on the machine or on a GPU."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    told = isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _PHRASES)
    return told or isinstance(error, MemoryError)


def halving(train_fleet: "TrainFleet") -> "TrainFleet":
    """The same, but what does not fit into memory goes on in halves; a run that does not fit alone fails."""

    def fits(configs: list[dict[str, Any]], folders: "list[RunFolder]", report: "Report") -> bool:
        try:
            train_fleet(configs, folders, report)
        except Exception as error:
            if not ran_out(error):
                raise
            if len(folders) > 1 or not folders[0].held:
                return False
            failure = MemoryError(TOO_LARGE)
            failure.__cause__ = error
            folders[0].fail(failure)
        return True

    def train(configs: list[dict[str, Any]], folders: "list[RunFolder]", report: "Report") -> None:
        if fits(configs, folders, report):
            return
        free()  # only here has the error let go of what its frames held
        left = [(config, folder) for config, folder in zip(configs, folders, strict=True) if folder.held]
        for half in (left[::2], left[1::2]):
            if half:
                train([config for config, _ in half], [folder for _, folder in half], report)

    return train


def free() -> None:
    """Give back what this process no longer needs, engines included: what broke off inside one may be left in it."""
    if "rawls.runners.training.setup" in sys.modules:
        sys.modules["rawls.runners.training.setup"].forget_engines()
    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        sys.modules["torch"].cuda.empty_cache()
    trim()


def trim() -> None:
    """Have glibc hand freed memory back, which our processes otherwise keep."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def available(root: Path = Path("/")) -> float:
    """Bytes that this process and its children can take: of the machine's and of its container's; inf if none says."""
    return min([*_of_machine(root), *_of_control_groups(root)], default=float("inf"))


def resident(what: str = "VmRSS") -> int | None:
    """Bytes of this process in memory: now, or (VmHWM) at most since `reset_peak`; None where the kernel has no say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{what}:")), None)


def reset_peak() -> bool:
    """Begin to watch the peak anew; False where that cannot be done."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _of_machine(root: Path) -> Iterator[float]:
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        yield from (float(int(line.split()[1]) << 10) for line in lines if line.startswith("MemAvailable:"))
    except OSError:
        if "SC_PHYS_PAGES" in os.sysconf_names:
            yield float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _of_control_groups(root: Path) -> Iterator[float]:
    """What is left under the limit of each control group that this process is in, in either version."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # In a container the path may be that of the host: then only the top is there.
        own = PurePosixPath(path.lstrip("/"))
        for folder in (top / own, *(top / parent for parent in own.parents)):
            try:
                limit, used = (int((folder / name).read_text(encoding="ascii")) for name in names[:2])
                stat = dict(text.split() for text in (folder / "memory.stat").read_text("ascii").splitlines())
            except (OSError, ValueError):  # no such group here, or no limit: 'max'
                continue
            # Files that nobody has open count as used, but make room at once.
            yield max(0.0, float(limit - used + int(stat.get(names[2], 0))))
