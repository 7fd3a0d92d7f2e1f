"""Training on a GPU, as far as a machine without one can tell.

The cases run in processes of their own, for torch asks once a process which devices there are.
"""

import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("gpu_cases.py")


def passed(*asked: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *asked, str(CASES)]
    found = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    print(found.stdout)
    return found.returncode == 0


@pytest.mark.parametrize("cases", ["every_method", "every_kind", "not every"])
def test_every_case_of_a_gpu_passes(cases: str) -> None:
    assert passed("-m", "not nightly", "-k", cases)


@pytest.mark.nightly
def test_the_long_cases_pass_too() -> None:
    assert passed("-m", "nightly")


def test_cases_that_are_not_there_do_not_pass() -> None:
    assert not passed("-k", "a case that is not there")
