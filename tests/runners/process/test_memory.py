import errno
import mmap
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from rawls.models.engines.fused import FusedEngine
from rawls.runners.config.compose import compose, resolve
from rawls.runners.process import memory
from rawls.runners.process.memory import available, ran_out
from rawls.runners.process.worker import train
from rawls.runners.schedule.launcher import planned
from rawls.runners.store.results_store import Store
from rawls.runners.training.fleet import train_fleet

MIB = 2**20


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError("Unable to allocate 8 GiB"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("std::bad_alloc"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_running_out_of_memory_looks_like(error: BaseException, expected: bool) -> None:
    assert ran_out(error) is expected


def test_torch_really_says_so() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**62, dtype=torch.uint8)
    assert ran_out(caught.value)


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "ascii")
    return root


MEMINFO = {"proc/meminfo": f"MemTotal: 9999999 kB\nMemAvailable: {1000 * 1024} kB\n"}


@pytest.mark.parametrize(
    ("files", "mib"),
    [
        ({}, 1000),
        (
            {  # version 2: the tightest of all groups above; files that nobody has open make room
                "proc/self/cgroup": "0::/job/step\n",
                "sys/fs/cgroup/job/step/memory.max": "max\n",
                "sys/fs/cgroup/job/step/memory.current": f"{50 * MIB}\n",
                "sys/fs/cgroup/job/step/memory.stat": "anon 1\ninactive_file 2\n",
                "sys/fs/cgroup/job/memory.max": f"{300 * MIB}\n",
                "sys/fs/cgroup/job/memory.current": f"{100 * MIB}\n",
                "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {20 * MIB}\n",
            },
            220,
        ),
        (
            {  # version 1 in a container: the path is the host's, only the top is there
                "proc/self/cgroup": "9:name=systemd:/\n4:memory:/host/path\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{400 * MIB}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{150 * MIB}\n",
                "sys/fs/cgroup/memory/memory.stat": f"cache 5\ntotal_inactive_file {50 * MIB}\n",
            },
            300,
        ),
        (
            {  # more used than allowed
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": "100\n",
                "sys/fs/cgroup/memory.current": "200\n",
                "sys/fs/cgroup/memory.stat": "",
            },
            0,
        ),
        ({"proc/self/cgroup": "4:memory:/nowhere\n"}, 1000),
    ],
)
def test_there_is_what_machine_and_container_leave(files: dict[str, str], mib: int, tmp_path: Path) -> None:
    assert available(machine(tmp_path, MEMINFO | files)) == mib * MIB


def test_there_is_some_memory_here() -> None:
    assert 0 < available() < 2**50


def test_the_peak_of_this_process_is_seen() -> None:
    if not memory.reset_peak():
        pytest.skip("this kernel does not forget a peak")
    before = memory.resident()
    with mmap.mmap(-1, 64 * MIB) as block:  # what is freed elsewhere in this process cannot serve it
        for page in range(0, 64 * MIB, mmap.PAGESIZE):
            block[page] = 1
    peak = memory.resident("VmHWM")
    assert before is not None and peak is not None
    assert 60 * MIB < peak - before < 80 * MIB


def test_a_real_fleet_goes_on_in_halves_from_its_checkpoints_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five runs of two methods; their checkpoints stand at step 8 of 12, and from there on no more than two fit."""
    small = ["dataset=digits", "scale=smoke", "tracking=off", "schedule.max_steps=12", "device=cpu"]
    kinds = ["algorithm=dpsgd", "algorithm=asc"]
    configs = [resolve(compose([*small, kinds[seed % 2], f"seed={seed}"])) for seed in range(5)]
    runs = tuple(planned(config) for config in configs)
    whole = Store(tmp_path / "whole")
    send: Any = lambda message: None  # noqa: E731
    assert train(runs, store=whole, train_fleet=train_fleet, send=send, asked_to_stop=lambda: False) == []

    store, real = Store(tmp_path / "halved"), FusedEngine.weighted_sum
    # Asked once before the first step, and by each run after every step.
    stopped = chain(repeat(False, 1 + 7 * len(runs)), repeat(True))
    train(runs, store=store, train_fleet=train_fleet, send=send, asked_to_stop=lambda: next(stopped))
    assert {store.state(run.run_id) for run in runs} == {"interrupted"}
    steps: list[int] = []
    engines: set[int] = set()

    def weighted_sum(self: FusedEngine, params: torch.Tensor, *rest: Any) -> Any:
        steps.append(len(params))
        engines.add(id(self))
        if len(params) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return real(self, params, *rest)

    monkeypatch.setattr(FusedEngine, "weighted_sum", weighted_sum)
    assert train(runs, store=store, train_fleet=train_fleet, send=send, asked_to_stop=lambda: False) == []
    # All five, then three of them, which are two and one.
    left = 12 - 8
    assert steps == [5, 3, *[2] * left, *[1] * left, *[2] * left]
    assert len(engines) > 1  # none that broke off in the middle is used again
    for run in runs:
        for name in ("summary.json", "ledger.json", "history.jsonl"):
            one, other = (one.root / "runs" / run.run_id / name for one in (whole, store))
            assert without_seconds(one) == without_seconds(other)


def without_seconds(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").splitlines() if '"seconds"' not in line]
