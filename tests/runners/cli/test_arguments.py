"""results.root=FOLDER of the commands that take nothing else."""

from pathlib import Path

import pytest

from rawls.runners.cli.arguments import plain, quoted, results_root
from rawls.runners.config.compose import compose
from rawls.runners.config.errors import ConfigError


def test_the_folder_named_last_counts() -> None:
    assert results_root("status", []) == Path("results")
    assert results_root("status", ["results.root=a", "results.root=b=c"]) == Path("b=c")


@pytest.mark.parametrize("text", ["results.root=", "results.root", "seed=1", "digits"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"rawls status does not know '{text}': only results.root=FOLDER can be set"):
        results_root("status", ["results.root=a", text])


@pytest.mark.parametrize("folder", ["a/b-c.d", "wälder", "a b", "runs (old)", "it's", "a=b", 'say "so"', "ä'b"])
def test_a_folder_is_the_same_however_it_is_quoted(folder: str) -> None:
    as_it_is = f"results.root={folder}"
    for_hydra = quoted(as_it_is)
    assert compose([for_hydra]).results.root == folder
    assert quoted(for_hydra) == for_hydra
    assert plain(for_hydra) == plain(as_it_is) == as_it_is
    assert results_root("status", [as_it_is]) == results_root("status", [for_hydra]) == Path(folder)


@pytest.mark.parametrize(
    "text", ["seed=ä", "results.root=${data.root}/r", "results.root=a,b", "-m", "results.root=[a]"]
)
def test_what_is_no_folder_goes_to_hydra_as_it_is(text: str) -> None:
    assert quoted(text) == plain(text) == text
