"""How much memory a process has taken, for benches."""

import resource
import sys
from pathlib import Path


def memory_taken() -> int:
    """Bytes of memory of the process's own, without the code of libraries; not Linux: the peak of all there is."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
