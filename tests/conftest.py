"""What every test shares: one thread, no network, no display, and a results root of its own."""

import os

# Before anything imports torch or numpy: tests run side by side, one thread each.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_variable] = "1"
os.environ["MPLBACKEND"] = "Agg"
os.environ["WANDB_MODE"] = "disabled"
os.environ["WANDB_SILENT"] = "true"
os.environ["RAWLS_MODULES"] = "tests"  # whose classes configurations may name

from pathlib import Path  # noqa: E402

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from tests.tree import ROOT  # noqa: E402

# No deadline: a busy machine is not a failure. Derandomised: the same commit gives the same verdict.
settings.register_profile("rawls", deadline=None, derandomize=True)
settings.load_profile("rawls")


@pytest.fixture
def results_root(tmp_path: Path) -> Path:
    """An empty folder for the results of one test."""
    return tmp_path / "results"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data files: RAWLS_SHARED_DATA, or ../shared/data beside the clone; skips without it."""
    folder = Path(os.environ.get("RAWLS_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: point RAWLS_SHARED_DATA at a folder of it")
    return folder
