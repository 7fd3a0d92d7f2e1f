import os
import signal
import subprocess
import sys

import pytest

from rawls.runners.process import lifecycle
from tests.tree import ROOT


def output_of(script: str, **environment: str) -> str:
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.check_output(command, cwd=ROOT, text=True, env={**os.environ, **environment})


FAULTS = """
import resource
from rawls.runners.process import lifecycle
if {prepared}:
    lifecycle.prepare_process()
import torch
def touch():
    for _ in range(10):
        torch.empty(12 * 2**20).fill_(1.0)
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.system  # eight seconds
@pytest.mark.skipif(not lifecycle.keep_freed_memory(), reason="not glibc")
def test_large_temporaries_cost_no_page_faults_once_the_process_is_prepared() -> None:
    """Ten of 48 MiB, more than glibc ever keeps by itself, after as many to warm up: faults come anew, or not.

    One small object left in the middle of the freed block sends the next temporary to fresh memory, so a prepared
    process may pay for one or two of the ten; a stock one pays for all.
    """
    prepared, stock = (int(output_of(FAULTS.format(prepared=value))) for value in (True, False))
    assert stock > 100
    assert prepared < stock / 3


KEPT = """
from pathlib import Path
from rawls.runners.process import lifecycle
def megabytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon:"))
lifecycle.keep_freed_memory()
before = megabytes()
large, last = bytearray(200 << 20), bytearray(100_000)
large = None
kept = megabytes()
lifecycle.give_back_freed_memory()
print(kept - before, megabytes() - before)
"""


@pytest.mark.skipif(not lifecycle.keep_freed_memory() or sys.platform != "linux", reason="not glibc on Linux")
def test_freed_memory_is_kept_until_it_is_given_back() -> None:
    kept, given_back = map(int, output_of(KEPT).split())
    assert kept > 190 and given_back < 10


def test_a_prepared_process_has_one_thread_whatever_the_environment_says() -> None:
    script = (
        "from rawls.runners.process import lifecycle; lifecycle.prepare_process(); import torch; "
        "print(torch.get_num_threads())"
    )
    assert output_of(script, OMP_NUM_THREADS="2", MKL_NUM_THREADS="2") == "1\n"


def test_signals_are_counted_not_raised_and_the_old_handlers_come_back() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heard: list[int] = []
    with lifecycle.Stop(heard.append) as stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        assert stop.requests == 2
    assert heard == [1, 2]
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_signal_held_back_is_heard_afterwards() -> None:
    with lifecycle.Stop() as stop:
        with lifecycle.signals_held():
            signal.raise_signal(signal.SIGINT)  # to this thread: pytest's others hold nothing back
            assert stop.requests == 0
        assert stop.requests == 1


ORPHAN = """
import os, signal, time
from rawls.runners.process import lifecycle
parent = os.getpid()
child = os.fork()
if child == 0:
    lifecycle.die_with_parent(parent)
    print(os.getpid(), flush=True)
    time.sleep(600)
os.read(0, 1)
os.kill(parent, signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills orphans")
def test_a_process_bound_to_its_parent_dies_with_it() -> None:
    command = [sys.executable, "-c", ORPHAN]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) > 1
        parent.stdin.write(b".")
        parent.stdin.flush()
        # The child, which sleeps for long, holds the other end of this pipe: it ends when the child does.
        assert parent.stdout.read() == b""


def test_a_process_whose_parent_is_already_dead_ends_at_once() -> None:
    script = (
        "import os; from rawls.runners.process import lifecycle; "
        "lifecycle.die_with_parent(os.getppid() + 1); print('lives')"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")


def test_cores_are_those_this_process_is_bound_to() -> None:
    assert 1 <= lifecycle.num_cores() <= (os.cpu_count() or 1)
    if hasattr(os, "sched_setaffinity"):
        mine = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, {min(mine)})
            assert lifecycle.num_cores() == 1
        finally:
            os.sched_setaffinity(0, mine)
