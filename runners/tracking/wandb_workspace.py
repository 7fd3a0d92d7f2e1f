"""`rawls wandb workspace`: a saved view in the W&B project, with the panels that compare methods.

It shows the runs of one target, or all; the results folder says which project they were mirrored to, how many groups
they have, and whether they log weights of groups. Calling it again replaces the view.
"""

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rawls.runners.cli.arguments import results_root
from rawls.runners.config.errors import ConfigError, nearest
from rawls.runners.store.checksums import read_sealed
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import EVALUATED, HISTORY, folder_of, variants
from rawls.runners.tracking.run_names import LONGEST_TAG
from rawls.runners.tracking.tracker import JOB_TYPE
from rawls.runners.tracking.wandb_sync import NO_KEY

USAGE = "wandb workspace [PAPER/TARGET] [results.root=FOLDER]"
_PACKAGE = "wandb_workspaces"
_COLUMNS = 3
_MOST_LINES = 100  # of a panel; W&B's own limit is 10
_VIEW = """
query View($entity: String, $project: String, $view: String) {
    project(name: $project, entityName: $entity) {
        allViews(viewType: "project-view", viewName: $view) { edges { node { id } } }
    }
}
"""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a view shows.

    Args:
        target: the target whose runs it shows; None for all runs.
        group_by: the key of the configuration that draws a line or a bar: `setting` where a method has several.
        group_names: of the groups that rows are drawn and charged by, in the order of their numbers.
        evaluated: of those that accuracies are of: others where groups overlap.
    """

    project: str
    entity: str | None
    target: str | None
    group_by: Literal["method", "setting"]
    group_names: tuple[str, ...]
    evaluated: tuple[str, ...]
    has_weights: bool

    @property
    def name(self) -> str:
        return f"rawls {self.target or 'methods'}"


def main(arguments: Sequence[str]) -> int:
    """Save the view, and say where it is."""
    names = [text for text in arguments if "=" not in text]
    root = results_root("wandb workspace", [text for text in arguments if "=" in text])
    if len(names) > 1:
        raise ConfigError(f"rawls wandb workspace shows one target: '{names[0]}' or '{names[1]}'")
    if find_spec(_PACKAGE) is None:
        raise ConfigError(f"the package {_PACKAGE} is not installed: call `make setup`, or `pip install {_PACKAGE}`")
    print(f"Saved: {save(look(root, names[0] if names else None))}")
    return 0


def look(root: Path, target: str | None) -> Shown:
    """What the results folder says of the view."""
    store = Store(root)
    planned = list(_planned(root, target)) if target else []
    done = store.done()
    if target:
        ids = {run["run_id"] for run in planned}
        done = [run_id for run_id in done if run_id in ids]
    damaged = store.damaged(done)
    done = [run_id for run_id in done if run_id not in damaged]
    # The newest first: it says where the runs of today are mirrored to.
    done.sort(key=lambda run_id: folder_of(root, run_id).stat().st_mtime_ns, reverse=True)
    tracked = (store.config(run_id)["tracking"] for run_id in done)
    tracking = next((one for one in tracked if one["mode"] != "off"), None)
    if tracking is None:
        raise ConfigError(
            f"no run{f' of {target}' if target else ''} under {root} was mirrored to W&B: train with tracking=offline, "
            "the default, and call `rawls wandb sync`, or with tracking=online"
        )
    by_method = bool(target) and len({(run["label"], run["seed"]) for run in planned}) == len(planned)
    return Shown(
        project=tracking["project"],
        entity=tracking["entity"],
        target=target,
        group_by="method" if by_method else "setting",
        group_names=_names(_groups(store.summary(run_id)) for run_id in done),
        evaluated=_names(_evaluated(store.summary(run_id)) for run_id in done),
        has_weights=any(_logs_weights(root, run_id) for run_id in done),
    )


def save(shown: Shown) -> str:
    """Put the view into the W&B project; return its address."""
    # This is asked of the server, whatever the mode of runs; and what W&B says to it is told by us.
    os.environ.pop("WANDB_MODE", None)
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb

    try:
        if not wandb.login(prompt=False, verify=False):
            raise ConfigError(NO_KEY)
        api = wandb.Api()
        entity = shown.entity or str(api.default_entity)
        view = workspace(shown, entity)
        # W&B finds a view by this name of its own: the same for the same view, so that there is one.
        inner = hashlib.sha256(f"{entity}/{shown.project}/{shown.name}".encode()).hexdigest()[:11]
        view._internal_name = f"nw-{inner}-v"
        view._internal_id = _id_of(view, api)
        view.save()
        return str(view.url)
    except ConfigError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise ConfigError(
            f"W&B did not save the view ({reason}): call the same command again when, or from where, W&B can be reached"
        ) from error


def _id_of(view: Any, api: Any) -> str:
    """What W&B knows a view by that it has already; '' for a new one."""
    from wandb_workspaces._graphql import execute_graphql

    asked = {"entity": view.entity, "project": view.project, "view": view._internal_name}
    project = execute_graphql(api, _VIEW, asked)["project"]
    if project is None:
        raise ConfigError(
            f"W&B has no project {view.entity}/{view.project} that you can see: `rawls wandb sync` makes it, and "
            "`wandb login --relogin` changes who you are"
        )
    return next((str(edge["node"]["id"]) for edge in project["allViews"]["edges"]), "")


def workspace(shown: Shown, entity: str) -> Any:
    """The view, as the package wandb-workspaces has it."""
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    grouped: dict[str, Any] = {
        "groupby": wr.Config(shown.group_by), "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev",
    }  # fmt: skip

    def bars(title: str, *metrics: str) -> Any:
        return wr.BarPlot(title=title, metrics=list(metrics), max_bars_to_show=_MOST_LINES, **grouped)

    def curve(title: str, metric: str) -> Any:
        return wr.LinePlot(title=title, y=[metric], max_runs_to_show=_MOST_LINES, **grouped)

    groups, evaluated = (list(enumerate(names)) for names in (shown.group_names, shown.evaluated))
    best = wr.ScatterPlot(title="Test WGA against AVG", x=wr.SummaryMetric("test/avg"), y=wr.SummaryMetric("test/wga"))
    sections: dict[str, list[Any]] = {
        "Test: worst group (WGA) and mean of groups (AVG)": [
            bars("Test WGA", "test/wga"), bars("Test AVG", "test/avg"), best,
        ],
        "Validation: WGA and AVG": [curve("Validation WGA", "valid/wga"), curve("Validation AVG", "valid/avg")],
        "Groups: accuracy on validation": [
            curve(f"Validation accuracy: {name}", f"valid/accuracy/{group}") for group, name in evaluated
        ],
        "Groups: accuracy on test": [
            bars(f"Test accuracy: {name}", f"test/accuracy/{group}") for group, name in evaluated
        ],
        "Privacy: ε planned and spent": [
            bars("ε planned and spent", "plan/epsilon", "ledger_epsilon"),
            *(
                bars(f"ε: {name}", f"plan/epsilon_per_group/{group}", f"ledger_epsilon_per_group/{group}")
                for group, name in groups
            ),
        ],
    }  # fmt: skip
    if shown.has_weights:
        sections["Weights of groups"] = [curve(f"Weight: {name}", f"group_weights/{group}") for group, name in groups]
    chosen = [ws.Metric("JobType") == JOB_TYPE]
    if shown.target:
        chosen.append(ws.Tags().isin([shown.target[:LONGEST_TAG]]))
    return ws.Workspace(
        entity=entity,
        project=shown.project,
        name=shown.name,
        sections=[
            ws.Section(
                name=name,
                panels=panels,
                is_open=True,
                layout_settings=ws.SectionLayoutSettings(columns=_COLUMNS, rows=math.ceil(len(panels) / _COLUMNS)),
            )
            for name, panels in sections.items()
            if panels
        ],
        settings=ws.WorkspaceSettings(max_runs=_MOST_LINES),
        runset_settings=ws.RunsetSettings(
            filters=ws.And(*chosen),
            groupby=[ws.Config(shown.group_by)],
        ),
    )


def _planned(root: Path, target: str) -> Iterator[Mapping[str, Any]]:
    """The runs of all variants of a target, each once under each label."""
    known = variants(root)
    if not (found := known.get(target)):
        way_out = nearest(target, known) if known else f"`rawls reproduce {target}` makes it"
        raise ConfigError(f"{root} holds no target '{target}': {way_out}")
    try:
        runs = [run for path in found for run in read_sealed(path)["runs"]]
        yield from {(run["run_id"], run["label"]): run for run in runs}.values()
    except (OSError, ValueError, KeyError, TypeError) as problem:
        why = f"{type(problem).__name__}: {problem}"
        raise ConfigError(f"a manifest of {target} cannot be read ({why}): `rawls reproduce {target}`") from problem


def _groups(summary: Mapping[str, Any]) -> Sequence[str]:
    return summary.get("group_names") or []


def _evaluated(summary: Mapping[str, Any]) -> Sequence[str]:
    return summary.get(EVALUATED) or _groups(summary)


def _names(of_runs: Iterator[Sequence[str]]) -> tuple[str, ...]:
    """What all runs that have a group call it; where they differ, its number."""
    called: dict[int, set[str]] = {}
    for names_of_run in of_runs:
        for group, name in enumerate(names_of_run):
            called.setdefault(group, set()).add(name)
    return tuple(names.pop() if len(names) == 1 else f"group {group}" for group, names in sorted(called.items()))


def _logs_weights(root: Path, run_id: str) -> bool:
    """Whether a finished run's history has weights of the groups."""
    # Read as text: of thousands of runs, nothing else in their histories is asked for.
    return b'"group_weights": [' in (folder_of(root, run_id) / HISTORY).read_bytes()
