"""What was not the paper's own setting, said wherever a result is shown (DESIGN 8).

Simulated data, a subset of the real data, data or weights that stand in for the paper's, any scale but the paper's, and
whatever else the command line changed are stamped in captions, figures and CSV columns, and make a comparison with the
paper's numbers an orientation, not a verdict. Which code made the runs is said where it was more than one commit's, and
judges nothing.
"""

import pandas as pd

from rawls.analysis.draw.titles import dataset_title

PROVENANCES = {
    "simulated": "simulated data",
    "subset": "subset of the data",
    "stand-in data": "stand-in for the data",
    "stand-in": "stand-in for the weights",
}
TRY_IT = "rawls reproduce asc/table1 dataset=digits scale=smoke privacy=eps8"  # takes half a minute
SHORT = {
    "simulated data": "SIMULATED DATA",
    "subset of the data": "SUBSET",
    "stand-in for the data": "STAND-IN DATA",
    "stand-in for the weights": "STAND-IN",
}


def reasons(runs: pd.DataFrame) -> list[str]:
    """Why the finished runs among `runs` are not comparable with the paper; empty when they are."""
    done = runs[runs["status"] == "done"]
    known = not_the_papers(done["provenance"])
    found = [text for key, text in PROVENANCES.items() if key in known]
    scales = done["scale"].dropna().unique()
    found += [f"scale: {scale}" for scale in sorted(scales) if scale != "paper"]
    return found + [f"changed: {changed}" for changed in done["changed"].unique() if changed]


def not_the_papers(provenances: pd.Series) -> set[str]:
    """Which of PROVENANCES there are; a run may be of two, as 'subset+stand-in' is."""
    return {key for value in provenances.dropna().unique() for key in value.split("+")} & set(PROVENANCES)


def stamp(runs: pd.DataFrame) -> str:
    """The stamp of a table or figure; empty when all is the paper's own. Datasets that differ are named."""
    by_dataset = {dataset: short(reasons(rows)) for dataset, rows in runs.groupby("dataset", sort=False)}
    texts = set(by_dataset.values())
    if len(texts) <= 1:
        return texts.pop() if texts else ""
    return "; ".join(f"{dataset_title(str(dataset))}: {text}" for dataset, text in by_dataset.items() if text)


def short(why: list[str]) -> str:
    return " · ".join(SHORT.get(reason, reason) for reason in why)


def headline(title: str, runs: pd.DataFrame) -> str:
    """The title and the target ε of the runs there are: a command may have asked for another than the paper's."""
    targets = sorted(runs["epsilon_target"].dropna().unique())
    return f"{title}, target ε = {', '.join(f'{target:g}' for target in targets)}" if targets else title


def notices(runs: pd.DataFrame) -> list[str]:
    """What must be said wherever the runs are shown: the stamp, whose code made them, and that some are missing."""
    unfinished = "" if (runs["status"] == "done").all() else f"UNFINISHED: {progress(runs)}"
    return [text for text in (stamp(runs), _code(runs), _damaged(runs), unfinished) if text]


def _damaged(runs: pd.DataFrame) -> str:
    """That what once was a result is left out, for it is not what was written."""
    number = int((runs["status"] == "damaged").sum())
    what = f"{number} run{'s are' if number > 1 else ' is'}"
    return f"DAMAGED: {what} left out, `rawls doctor` says why" if number else ""


def _code(runs: pd.DataFrame) -> str:
    """Empty when all finished runs were made by one commit, as it was committed; a run that names none says nothing."""
    made = runs[runs["status"] == "done"].dropna(subset="git_sha")
    versions = sorted({(sha[:7], dirty is True) for sha, dirty in zip(made["git_sha"], made["git_dirty"], strict=True)})
    if len(versions) > 1:
        names = ", ".join(sha + (" + uncommitted changes" if dirty else "") for sha, dirty in versions)
        return f"MADE BY {len(versions)} VERSIONS OF THE CODE ({names})"
    return "".join(f"MADE BY CODE WITH UNCOMMITTED CHANGES (to {sha})" for sha, dirty in versions if dirty)


def progress(runs: pd.DataFrame) -> str:
    """'3 of 10 runs', or '3 of 10 runs, 1 failed'; what did not finish is named only if there is any."""
    counts = runs["status"].value_counts()
    others = [f"{counts[status]} {status}" for status in ("failed", "running", "damaged") if status in counts]
    return ", ".join([f"{counts.get('done', 0)} of {len(runs)} runs", *others])


def target_verdict(runs: pd.DataFrame, judged: str) -> str:
    """The one phrase for a target: 'missing (…)', 'partial (…); judged', or `judged` alone.

    An empty `judged` is a figure's, which has no number to compare: 'complete' when all runs are there.
    """
    done = int((runs["status"] == "done").sum())
    if done == 0 and len(runs):
        return f"missing ({progress(runs)})"
    if done < len(runs):
        return "; ".join(part for part in (f"partial ({progress(runs)})", judged) if part)
    return judged or "complete"
