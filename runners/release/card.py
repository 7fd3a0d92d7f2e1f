"""The card of a model that leaves: what it is, what it was trained on, how well it does for whom, what it may reveal.

For those who get the folder and nothing else. The privacy sheet is part of it, as the run wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rawls.accounting.sheets.words import bullets, listed, number, table
from rawls.algorithms.core.about import about
from rawls.runners.config.specifications import build, name_of
from rawls.runners.release.command import command_of
from rawls.runners.release.finished import FinishedRun
from rawls.runners.store.stored import EVALUATED, EVALUATED_SIZES, mark_of

PARTS = ("train", "valid", "test")
MOST_NAMED = 24
SECURE = "privacy.secure=true"
_STAMPS = {
    "simulated": "its data were made up, so it shows that things work, and no more",
    "subset": "it was trained on a part of the data alone",
    "stand-in data": "its data stand in for the paper's",
    "stand-in": "the weights of its frozen part are not the paper's",
}
MEASURED = (
    "These numbers, and those of summary.json, were measured on the rows themselves, outside the accounting: the ε "
    "does not cover them. Take both out of the folder where whoever gets it must not know them."
)


def warnings_of(run: FinishedRun) -> list[str]:
    """What whoever takes the model must know first, a sentence each."""
    told = []
    provenance = run.summary["provenance"]
    if mark := mark_of(provenance):
        reasons = [_STAMPS[kind] for kind in provenance.split("+") if kind in _STAMPS]
        told.append(f"It is stamped {mark}: {' and '.join(reasons)}.")
    if not run.is_private:
        told.append(
            f"It was trained without privacy by {name_of(run.config['algorithm'])}: it may reveal any training row. "
            "`rawls train algorithm=asc …`, or another private method, trains one that does not."
        )
    elif not run.is_secure:
        told.append(
            "Its noise was drawn from a seed, so who knows the configuration can draw it again and take it off. For "
            f"release, train with noise of the operating system: {for_release(run)}"
        )
    return told


def for_release(run: FinishedRun) -> str:
    """What trains the same with noise that nobody can draw again."""
    if run.is_given:
        return "`rawls.fit(…, secure=True)`"
    command = _command(run, SECURE)
    return f"the command that trained it, and {SECURE}" if command is None else f"`{command}`"


def _command(run: FinishedRun, *changes: str) -> str | None:
    """What trains it, with no folder of this machine in it."""
    command, path = command_of(run.config, *changes), run.config["dataset"].get("path")
    return command if command is None or path is None else command.replace(path, Path(path).name)


def card(run: FinishedRun, files: Mapping[str, str], parameters: int) -> str:
    """The card as Markdown.

    Args:
        files: what lies beside it, and what that is.
        parameters: how many were trained.
    """
    summary = run.summary
    mark = mark_of(summary["provenance"])
    title = f"# Model card: {summary['algorithm']} on {summary['dataset']}" + (f" ({mark})" if mark else "")
    blocks = [
        title,
        *(f"**{text}**" for text in warnings_of(run)),
        "## What it is",
        table(["", ""], _facts(run, parameters)),
        "## How to use it",
        _use(run, files),
        "## What it was trained on",
        *_data(run),
        "## How well it does",
        *_accuracies(run),
        "## Privacy",
        *_privacy(run),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _facts(run: FinishedRun, parameters: int) -> list[list[str]]:
    summary, made = run.summary, run.environment
    words = about(build(run.config["algorithm"], "algorithm"))
    commit = (
        f", commit {made['git_sha'][:12]}" + (" with changes" if made["git_dirty"] else "") if made["git_sha"] else ""
    )
    frozen = " behind a frozen part" if "features" in run.inputs else ""
    command = "`rawls.fit(…)` of a Python program" if run.is_given else _command(run)
    return [
        ["Method", f"`{summary['algorithm']}`: {words.title}" + (f" ({words.paper})" if words.paper else "")],
        ["Model", f"`{summary['model']}`, {parameters:,} parameters trained{frozen}"],
        ["Takes", _takes(run.inputs)],
        ["Answers", f"{_some(run.inputs['classes'])} ({len(run.inputs['classes'])} classes)"],
        ["Trained", f"{made['finished']}, by torch {made['versions']['torch']}{commit}"],
        ["Steps", f"{summary['steps']:,} of batch size {summary['batch_size']:,}, seed {summary['seed']}"],
        ["Run", f"`{run.run_id}`"],
        ["Command", "no command alone: config.yaml has all of it" if command is None else _code(command)],
    ]


def _code(text: str) -> str:
    return text if text.startswith("`") else f"`{text}`"


def _takes(inputs: Mapping[str, Any]) -> str:
    if inputs["kind"] == "table":
        return f"rows of a table with the columns {listed([column['name'] for column in inputs['columns']])}"
    if inputs["kind"] == "images":
        size = inputs["image_size"]
        return f"images: the middle square of each, resized to {size} x {size}, in three colours from 0 to 1"
    scale = ", bytes in units of 1/255" if inputs["in_bytes"] else ""
    return f"inputs of shape {inputs['shape']}, {inputs['dtype']}{scale}"


def _use(run: FinishedRun, files: Mapping[str, str]) -> str:
    rows = {"table": "csv.DictReader(open('rows.csv'))", "images": "['a.png', 'b.png']"}
    asked = rows.get(run.inputs["kind"], "inputs")
    asked = f"list({asked})" if run.inputs["kind"] == "table" else asked
    with_rawls = (
        "rows.csv" if run.inputs["kind"] == "table" else "FOLDER" if run.inputs["kind"] == "images" else "inputs.npy"
    )
    return "\n".join(
        [
            "In this folder, with torch and safetensors, and without rawls:",
            "",
            "    from load import load",
            "    model = load()",
            f"    model.predict({asked})",
            "",
            f"With rawls: `rawls predict . {with_rawls}`, or `rawls.load_model('.').predict(rows)`.",
            "",
            bullets([f"`{name}`: {what}" for name, what in files.items()]),
            *(["", _columns(run.inputs["columns"])] if run.inputs["kind"] == "table" else []),
        ]
    )


def _columns(columns: Sequence[Mapping[str, Any]]) -> str:
    """What each column becomes; a cell is missing if it says so ('', ?, NA, …)."""
    return table(["Column", "becomes", "a missing cell"], [list(_column(column)) for column in columns])


def _column(column: Mapping[str, Any]) -> Iterator[str]:
    yield column["name"]
    if column["kind"] == "category":
        yield f"a bit for each of {_some(column['values'])}; none for another text"
        yield "a bit of its own" if column["indicated"] else "no bit"
        return
    bounds = column["bounds"]
    clipped = f", cut to {bounds[0]:g} to {bounds[1]:g}" if bounds else ""
    yield f"(number - {column['centre']:.6g}) / {column['scale']:.6g}{clipped}"
    yield ("the middle of its bounds" if bounds else "the mean") + (", and an input of its own" * column["indicated"])


def _data(run: FinishedRun) -> Iterator[str]:
    summary, config = run.summary, run.config
    mark = mark_of(summary["provenance"])
    name = f"`{summary['dataset']}`" + (f" ({mark})" if mark else "")
    yield (
        f"{name}: {run.inputs['meaning']}"
        if run.inputs["meaning"]
        else f"{name}{', of these files:' * bool(summary['data_sources'])}"
    )
    if told := config["dataset"].get("label"):
        cut = "".join(
            f"; {name} is cut at {listed(list(map(str, at)))}" for name, at in run.inputs["thresholds"].items()
        )
        yield f"Classes are of the column {told}, groups of {listed(run.inputs['group'])}{cut}."
    if sources := summary["data_sources"]:
        yield bullets([f"{name} (SHA-256 {digest})" for name, digest in sources.items()])
    names, sizes = summary.get(EVALUATED, summary["group_names"]), summary.get(EVALUATED_SIZES, summary["group_sizes"])
    rows = [f"{name} {size:,}" for name, size in zip(names, sizes, strict=True)]
    yield f"Training rows, {sum(summary['group_sizes']):,} in all, by group: {_some(rows)}."
    if run.inputs["assumed"]:
        yield "Read of these rows outside the accounting, and part of what leaves:\n\n" + bullets(run.inputs["assumed"])


def _accuracies(run: FinishedRun) -> Iterator[str]:
    summary = run.summary
    parts = [part for part in PARTS if part in summary]
    names = summary.get(EVALUATED, summary["group_names"])
    rows = []
    for place, name in enumerate(names):
        of_parts = [_percent(summary[part]["accuracy"][place]) for part in parts]
        rows.append([name, *of_parts, f"{summary[parts[-1]]['count'][place]:,}"])
    rows += [
        [title, *(_percent(summary[part][key]) for part in parts), ""]
        for title, key in (("**WGA**, the lowest", "wga"), ("**AVG**, their mean", "avg"))
    ]
    yield table(["Accuracy of the group, %", *parts, f"rows in {parts[-1]}"], rows)
    yield MEASURED


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _privacy(run: FinishedRun) -> Iterator[str]:
    """In short, then the sheet."""
    if run.is_private:
        plan = run.summary["plan"]
        noise = (
            "the noise came from the operating system, and nobody can draw it again"
            if run.is_secure
            else "the noise came from a seed: who knows the configuration can draw it again"
        )
        yield (
            f"Proven: ε = {number(plan['epsilon'])} at δ = {plan['delta']:.3g} for each training row; {noise}. "
            "`ledger.json` holds every noisy answer that was computed from the data. What the ε leaves out is said "
            "below under “What is not covered”."
        )
    else:
        yield "None: nothing limits what this model reveals of its training rows."
    yield re.sub(r"^(#+) ", r"##\1 ", run.privacy.strip(), flags=re.MULTILINE)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(str, names[:MOST_NAMED]))
    return f"{shown} and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else shown
