"""results.root=FOLDER of the commands that take nothing else."""

from pathlib import Path

import pytest

from rawls.runners.cli.arguments import results_root
from rawls.runners.config.errors import ConfigError


def test_the_folder_named_last_counts() -> None:
    assert results_root("status", []) == Path("results")
    assert results_root("status", ["results.root=a", "results.root=b=c"]) == Path("b=c")


@pytest.mark.parametrize("text", ["results.root=", "results.root", "seed=1", "digits"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"rawls status does not know '{text}': only results.root=FOLDER can be set"):
        results_root("status", ["results.root=a", text])
