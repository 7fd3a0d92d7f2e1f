"""Expands an experiment's blocks, or a plain grid, into runs; and writes the manifest of a target.

An experiment (conf/experiment/<paper>/<target>.yaml) has `common` overrides, and `blocks` of further ones
under the label that tables print, in which `{algorithm}` stands for the method's name: a block may have several.
Every value, alone or in a list, is an axis of the block's grid. The command line wins: where blocks differ in a key
(mostly `algorithm`), naming one of their values selects those blocks; any other value takes the place of theirs, and
an algorithm that no block names joins as a block of its own. Seeds are 0, 1, … up to the experiment's number, or the
scale's if that is smaller, unless `seed` is given. A block's `KEY: x0.3` is 0.3 times what the run is configured with.

An experiment without blocks is computed as it is drawn: it needs no run.
"""

import itertools
import json
import math
import re
import shlex
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from rawls.runners.cli.arguments import plain
from rawls.runners.config.compose import Composer, composer, explained, hydra_ready, run_id
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import name_of
from rawls.runners.process.news import counted
from rawls.runners.store.checksums import sealed
from rawls.runners.store.files import to_json, write_together, writing
from rawls.runners.store.stored import MANIFEST, identifies, target_folder

Axes = dict[str, list[str]]
"""The overrides (`key=value`) that a grid takes for each key."""

MAX_NAME = 100
HELD_OUT = 0.1  # of the training rows

# What Hydra's grammar reads as something else than a text.
_NO_TEXTS = ("null", "true", "false", "inf", "nan")

# A multiple of what a run is configured with.
_FACTOR = re.compile(r"(?P<key>[\w.]+)=x(?P<factor>\d*\.?\d+)")

# What every drawing may ask of a run, beside the keys that vary in its target.
_COORDINATES = ("privacy.epsilon", "privacy.search", "privacy.accountant", "schedule.batch_size")


@dataclass(frozen=True, kw_only=True)
class ComposedRun:
    """One run: its label in tables, the overrides that make it, and where it lies in the target's grid."""

    run_id: str
    label: str
    overrides: tuple[str, ...]
    config: dict[str, Any]
    coordinates: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """The runs of a sweep; `target` and `experiment` are None for a plain grid.

    Args:
        variant: what the command line asked for, as a folder name.
        changed: the overrides among it that are not what the experiment itself says.
        command: the command that makes the target again.
        config: of the first run, or what was asked for where there is none: where results go, and who is told.
        refused: of an experiment that leaves out what does not fit, what cannot even be configured, and why.
    """

    target: str | None
    experiment: dict[str, Any] | None
    runs: tuple[ComposedRun, ...]
    variant: str
    changed: tuple[str, ...]
    command: str
    config: dict[str, Any]
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Where its runs lie: a sweep writes to one folder."""
        return Path(self.config["results"]["root"])


def plan(arguments: Sequence[str], base: Sequence[str] = (), compose: Composer | None = None) -> SweepPlan:
    """The runs that a command line asks for.

    Args:
        arguments: overrides, with sweeps (`a=1,2`) and at most one `experiment=PAPER/TARGET`.
        base: overrides of Hydra's own that decide where configurations are found.
        compose: what composes them; None is the one of this process.

    Raises:
        ConfigError: an argument that cannot be read, a run that cannot be configured, or no run where some are needed.
    """
    compose = compose or composer(tuple(base))
    asked = [text for text in arguments if re.match(r"\+{0,2}experiment[.=]", text)]
    axes = _command_line(text for text in arguments if text not in asked)
    about = _command_line(asked)
    for key, why in (("results.root", "one sweep writes to one folder"), ("experiment", "one at a time")):
        if len(texts := (axes | about).get(key, [])) > 1:
            raise ConfigError(f"{', '.join(texts)}: {why}")
    experiment = compose(asked)["experiment"]
    runs: dict[tuple[str, str], ComposedRun] = {}
    refused: dict[str, str] = {}
    for label, grid in _grids(experiment, axes):
        points = math.prod(map(len, grid.values()))
        for overrides in counted(itertools.product(*grid.values()), "planned", points):
            try:
                for run in _seeds(compose, experiment, label, overrides):
                    # Two labels may come to one configuration, an ablation and its baseline say: both are shown.
                    runs.setdefault((run.label, run.run_id), run)
            except ConfigError as error:
                if experiment is None or not experiment["fitting"]:
                    raise
                refused.setdefault(_refused_label(label, overrides), str(error))
    if refused and not runs:
        raise ConfigError(next(iter(refused.values())))
    if not runs and (experiment is None or experiment["blocks"]):
        raise ConfigError("there are no runs: every axis needs a value")
    target = _target(asked) if experiment else None
    changes = [text for text in arguments if text != f"experiment={target}" and not text.startswith("retrain=")]
    return SweepPlan(
        target=target,
        experiment=experiment,
        runs=tuple(runs.values()),
        variant=_variant(axes | about, runs.values()),
        changed=(*_changed(experiment, axes), *_drawn_otherwise(about)) if experiment else (),
        command=shlex.join(["rawls", *(["reproduce", target] if target else ["train", "-m"]), *map(plain, changes)]),
        config=next(iter(runs.values())).config if runs else compose([texts[0] for texts in axes.values()]),
        refused=refused,
    )


def manifest_of(plan: SweepPlan) -> dict[str, Any]:
    """What analysis needs to draw a target."""
    assert plan.experiment is not None
    return {
        "target": plan.target,
        "title": plan.experiment["title"],
        "draw": plan.experiment["draw"],
        "variant": plan.variant,
        "changed": list(plan.changed),
        "command": plan.command,
        "runs": [
            {
                "run_id": run.run_id,
                "label": run.label,
                "dataset": name_of(run.config["dataset"]),
                "algorithm": name_of(run.config["algorithm"]),
                "seed": run.config["seed"],
                "scale": run.config["scale"]["name"],
                "coordinates": run.coordinates,
            }
            for run in plan.runs
        ],
    }


def write_manifest(plan: SweepPlan, results_root: Path) -> Path:
    """Write the manifest where the target's tables and figures will lie; return its path."""
    path = target_folder(results_root, str(plan.target), plan.variant) / MANIFEST
    with writing(results_root):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_together(path, to_json(sealed(json.loads(to_json(manifest_of(plan)))), indent=2) + "\n")
    return path


def _command_line(arguments: Iterable[str]) -> Axes:
    """Each argument as the values it takes; a key given twice takes the last."""
    axes: Axes = {}
    with hydra_ready():
        parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
        for text in arguments:
            try:
                (override,) = parser.parse_overrides([text])
                axes[override.get_key_element()] = _values(override, text)
            except HydraException as error:
                raise explained(error, [text]) from error
    return axes


def _values(override: Override, text: str) -> list[str]:
    if not override.is_sweep_override():
        return [text]
    if not override.is_discrete_sweep():
        raise ConfigError(f"'{text}' is no grid: list the values (KEY=A,B) or give a range (KEY=range(0,3))")
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]


def _axes(overrides: Mapping[str, Any]) -> Axes:
    """The same of a block's mapping: lists are axes, lists in lists are values."""
    return {
        key: [f"{key}={text_of(value)}" for value in (values if isinstance(values, list) else [values])]
        for key, values in overrides.items()
    }


def text_of(value: Any) -> str:
    """A value in Hydra's override grammar."""
    if isinstance(value, str) and (not re.fullmatch(r"[A-Za-z_][\w./-]*", value) or value.lower() in _NO_TEXTS):
        return QuotedString(text=value, quote=Quote.single).with_quotes()
    if isinstance(value, list):
        return f"[{','.join(map(text_of, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{text_of(item)}' for key, item in value.items())}}}"
    return value if isinstance(value, str) else json.dumps(value)


def _grids(experiment: Mapping[str, Any] | None, axes: Axes) -> list[tuple[str | None, Axes]]:
    """Label and axes of each block, once the command line has had its say."""
    if experiment is None:
        return [(None, axes)]
    common = _axes(experiment["common"])
    blocks = [_Block(block["label"], common, _axes(block["overrides"])) for block in experiment["blocks"]]
    for key in sorted(axes, key=lambda key: (key != "algorithm", key)):
        blocks = _narrowed(blocks, key, axes[key])
    return [(block.label, {**block.common, **block.own}) for block in blocks]


@dataclass(frozen=True)
class _Block:
    label: str
    common: Axes
    own: Axes

    def take(self, key: str, texts: list[str]) -> "_Block":
        """The block with these values for a key, which keeps its place."""
        if key in self.own:
            return _Block(self.label, self.common, {**self.own, key: texts})
        return _Block(self.label, {**self.common, key: texts}, self.own)


def _narrowed(blocks: list[_Block], key: str, texts: list[str]) -> list[_Block]:
    """The blocks once the command line gives these values to a key."""
    offered = {text for block in blocks for text in block.own.get(key, [])}
    new = [text for text in texts if text not in offered]
    kept = []
    for block in blocks:
        if key not in block.own:
            kept.append(block.take(key, texts))
        elif chosen := [text for text in texts if text in block.own[key]] + (new if key != "algorithm" else []):
            kept.append(block.take(key, chosen))
    if key == "algorithm" and blocks:
        # A method the experiment does not know joins under its own name, with what all blocks have in common.
        kept += [_Block(text.partition("=")[2], blocks[0].common, {key: [text]}) for text in new]
    return kept


def _seeds(
    compose: Composer, experiment: Mapping[str, Any] | None, label: str | None, overrides: tuple[str, ...]
) -> Iterable[ComposedRun]:
    """The runs of one point of a grid."""
    overrides = _multiplied(compose, overrides)
    if experiment is not None and experiment["fitting"]:
        overrides = _held_out(compose, overrides)
    if experiment is None or any(text.startswith("seed=") for text in overrides):
        points = [overrides]
    else:
        limit = compose(overrides)["scale"]["seeds"]
        num_seeds = experiment["seeds"] if limit is None else min(limit, experiment["seeds"])
        points = [(*overrides, f"seed={seed}") for seed in range(num_seeds)]
    coordinates: dict[str, Any] | None = None
    for point in points:
        config = compose(point)
        if coordinates is None:  # the seed is none
            coordinates = _coordinates(config, point)
        yield ComposedRun(
            run_id=run_id(config),
            label=(label or "{algorithm}").replace("{algorithm}", name_of(config["algorithm"])),
            overrides=point,
            config=config,
            coordinates=coordinates,
        )


def _refused_label(label: str | None, overrides: Iterable[str]) -> str:
    """'aZB on digits', as far as the overrides say."""
    dataset = [text.partition("=")[2] for text in overrides if text.startswith("dataset=")]
    return " on ".join([str(label), *dataset[:1]])


def _held_out(compose: Composer, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """The overrides, and a share for validation where nothing says one: whoever chooses needs rows to choose by."""
    dataset, key = compose(overrides)["dataset"], "dataset.validation="
    if dataset.get("validation", HELD_OUT) or any(text.startswith(key) for text in overrides):
        return overrides
    return (*overrides, f"{key}{HELD_OUT}")


def _multiplied(compose: Composer, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """The overrides, in which `KEY=x0.3` is 0.3 times what the others come to."""
    factors = {text: found for text in overrides if (found := _FACTOR.fullmatch(text))}
    if not factors:
        return overrides
    config = compose([text for text in overrides if text not in factors])
    values = {}
    for text, found in factors.items():
        value = _value_at(config, found["key"])
        if not isinstance(value, int | float):
            raise ConfigError(
                f"{text} is a multiple of {found['key']}, which is {'no key' if value is None else value}"
            )
        values[text] = f"{found['key']}={value * float(found['factor']):.3g}"
    return tuple(values.get(text, text) for text in overrides)


def _value_at(config: Mapping[str, Any], key: str) -> Any:
    """A value by its whole key; None where there is none."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _coordinates(config: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Values by the last part of their key: what drawings ask for, and what this run was given."""
    given = [text.partition("=")[0].lstrip("+~") for text in overrides]
    found = {}
    for key in (*_COORDINATES, *filter(_identifies, given)):
        value = _value_at(config, key)
        if value is not None and not isinstance(value, Mapping):
            found[key.rpartition(".")[2]] = value
    return found


def _identifies(key: str) -> bool:
    """Whether runs of one seed that differ in this key are different runs."""
    return identifies(key) and key.partition(".")[0] != "seed"


def _target(asked: Iterable[str]) -> str:
    """The experiment's name."""
    return next(name for key, _, name in (text.partition("=") for text in asked) if key.lstrip("+") == "experiment")


def _changed(experiment: Mapping[str, Any], axes: Axes) -> tuple[str, ...]:
    """The values that make other runs than the experiment's, whichever of its methods and datasets they are."""
    mappings = [experiment["common"], *(block["overrides"] for block in experiment["blocks"])]
    offered = {text for mapping in mappings for texts in _axes(mapping).values() for text in texts}
    selects = {"algorithm", "dataset"}
    found = (texts for key, texts in sorted(axes.items()) if _identifies(key) and key not in selects)
    return tuple(text for texts in found for text in texts if text not in offered)


def _drawn_otherwise(about: Axes) -> tuple[str, ...]:
    """What the command line says of the drawing itself."""
    return tuple(text for key, texts in sorted(about.items()) if _is_of_drawing(key) for text in texts)


def _is_of_drawing(key: str) -> bool:
    return key.lstrip("+~").startswith("experiment.draw.")


def _variant(axes: Axes, runs: Iterable[ComposedRun]) -> str:
    """The folder of a target's drawing: the datasets asked for, the scale of its runs, and what else was asked for."""
    parts = {key.lstrip("+~"): "+".join(text.partition("=")[2] for text in texts) for key, texts in axes.items()}
    dataset = parts.get("dataset")
    scale = "+".join(dict.fromkeys(run.config["scale"]["name"] for run in runs)) or "computed"
    others = [
        f"{key.rpartition('.')[2]}={value}"
        for key, value in sorted(parts.items())
        if key not in ("dataset", "scale", "experiment")
        and (_identifies(key) or key in ("seed", "experiment.seeds", "dataset.path") or _is_of_drawing(key))
    ]
    name = "-".join(re.sub(r"[^\w.+=-]", "_", part) for part in [dataset, scale, *others] if part)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}-{zlib.crc32(name.encode()):08x}"
