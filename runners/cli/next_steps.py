"""What shows more of what a command made: said at its end, as commands to copy."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rawls.runners.cli.arguments import plain
from rawls.runners.store.results_store import Store
from rawls.runners.sweeps.experiments import ComposedRun

_PAIRED_BY = ("seed=", "dataset", "privacy")  # what runs of two methods may differ in beside


def next_steps(root: Path, runs: Sequence[ComposedRun], *, target: str = "") -> str:
    """The commands, one below the other; '' where nothing is finished and nothing was drawn.

    Args:
        runs: what was asked for.
        target: PAPER/TARGET/VARIANT, if that is what they are for.
    """
    states = Store(root).states([run.run_id for run in runs])
    done = [run for run in runs if states[run.run_id] == "done"]
    if not done and not target:
        return ""
    where = "" if str(root) == "results" else f"results.root={root}"
    steps = [(["dashboard"], "everything on a local page"), (["report"], "one HTML file, for those who were not there")]
    settings: dict[str, set[tuple[str, ...]]] = {}
    for run in done:
        own = tuple(text for text in run.overrides if not text.startswith(_PAIRED_BY))
        settings.setdefault(run.label, set()).add(own)
    if len(settings) > 1 and all(len(several) == 1 for several in settings.values()):  # else a name is not one setting
        of_these = f"target={target}" if target else _shared(done)
        steps.insert(0, (["compare", *list(settings)[:2], of_these], "two methods, paired by seed"))
    lines = [(shlex.join(["rawls", *filter(None, [*words, where])]), why) for words, why in steps]
    width = max(len(line) for line, _ in lines)
    return "\n".join(["Next:", *(f"  {line:{width}}  # {why}" for line, why in lines)])


def release_steps(runs: Sequence[ComposedRun]) -> str:
    """How to train the setting of these runs once more, with noise that nobody can draw again; '' without any.

    Args:
        runs: of one setting on each dataset.
    """
    settings = dict.fromkeys(
        tuple(text for text in run.overrides if not text.startswith(("seed=", "tracking="))) for run in runs
    )
    if not settings:
        return ""
    lines = [shlex.join(["rawls", "train", *map(plain, words), "privacy.secure=true"]) for words in settings]
    lines.append("rawls export RUN  # the folder that training ends with names the run")
    return "\n".join(
        ["To train it for release (its noise from the operating system):", *(f"  {line}" for line in lines)]
    )


def _shared(runs: Sequence[ComposedRun]) -> str:
    """The dataset, where the sweep has one."""
    datasets = {text for run in runs for text in run.overrides if text.startswith("dataset=")}
    return datasets.pop() if len(datasets) == 1 else ""
