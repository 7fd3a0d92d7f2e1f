"""What a training process sets up before its first tensor, and how it stops.

Stock torch on glibc loses a factor of 1.4 to 3 to page faults on large temporaries, so the process keeps the
memory it frees instead of handing it back. One thread, always: a sum over more threads rounds differently,
and a run must end in the same numbers alone, in a fleet, and after a resume.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

# Parameters of glibc's mallopt (malloc.h) and the values that were measured.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_ALLOCATOR = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 256 * 2**20}
_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def prepare_process(*, num_threads: int = 1) -> None:
    """Fix allocator and thread count of this process; to be called before the first tensor."""
    keep_freed_memory()
    for library in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{library}_NUM_THREADS"] = str(num_threads)
    import torch

    torch.set_num_threads(num_threads)


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory; False where the C library is another one."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return [library.mallopt(option, value) for option, value in _ALLOCATOR.items()] == [1] * len(_ALLOCATOR)


def give_back_freed_memory() -> None:
    """Hand what was freed by now back to the system, whatever is kept of what is freed from now on."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent (given by its id) dies; only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we could ask
        os._exit(1)


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Change variables of the environment for a while: of this process, and of those that it starts meanwhile."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back meanwhile; a process started here begins so too, and loses none."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Stop:
    """SIGINT and SIGTERM as a request, answered where a run can be saved and not in the middle of a step.

    A context manager; `requests` counts the signals. In another thread than the main one it sees none.
    """

    def __init__(self, on_request: Callable[[int], None] | None = None) -> None:
        self.requests = 0
        self._on_request = on_request
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            for number in _STOP_SIGNALS:
                self._before[number] = signal.signal(number, self._ask)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.requests += 1
        if self._on_request is not None:
            self._on_request(self.requests)


def num_cores() -> int:
    """Cores this process may use: those it is bound to, and no more than its container pays for."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, _, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").partition(" ")
        return max(1, min(bound, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no such limit
        return bound
