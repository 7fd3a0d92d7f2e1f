"""The command that trains a run again, from its configuration: the choices of groups, and what differs from them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rawls.runners.config.compose import choices, composer, run_id
from rawls.runners.config.schema import OPTIONAL_SPECS, SPECS
from rawls.runners.config.specifications import name_of
from rawls.runners.store.identity import TARGET
from rawls.runners.store.stored import identifies
from rawls.runners.sweeps.experiments import text_of

_NEEDED = ("path", "label", "group")  # of one's own files: without them nothing can be composed


def command_of(config: Mapping[str, Any], *changes: str) -> str | None:
    """`rawls train …` with these changes; None for what no command can say: arrays of a program, files elsewhere."""
    overrides = overrides_of(config)
    return None if overrides is None else shlex.join(["rawls", "train", *overrides, *changes])


def overrides_of(config: Mapping[str, Any]) -> list[str] | None:
    """Those of `rawls train` that make a run of the same id; None if there are none."""
    groups = [group for group in (*SPECS, *OPTIONAL_SPECS) if config.get(group) is not None]
    names = {group: name_of(config[group]) for group in groups}
    own = [f"dataset.{key}={text_of(config['dataset'][key])}" for key in _NEEDED if key in config["dataset"]]
    scale = [f"scale={config['scale']['name']}"]
    own_first = sorted(choices("owners"), key=lambda name: name != names["dataset"])
    for owners in own_first if "owners" in names else [""]:
        chosen = [f"{group}={owners if group == 'owners' else name}" for group, name in names.items()]
        try:
            overrides = [*chosen, *own, *scale]
            overrides += _differences(config, composer()(overrides), given=own)
            if run_id(composer()(overrides)) == run_id(config):
                return overrides
        except (ValueError, OSError):  # of a name that is none of ours, of a file that is no longer there
            continue
    return None


def _differences(config: Mapping[str, Any], composed: Mapping[str, Any], given: Sequence[str]) -> list[str]:
    """What sets the values in which a configuration differs from a composed one."""
    wanted, there = _values(config), _values(composed)
    differ = [key for key in wanted if key not in there or wanted[key] != there[key]]
    said = {text.partition("=")[0] for text in given}
    return [f"{key}={text_of(wanted[key])}" for key in differ if key not in said]


def _values(config: Mapping[str, Any]) -> dict[str, Any]:
    """By key, as one command would set them: of a group each of its keys, whatever that holds."""
    found: dict[str, Any] = {}
    for group, node in config.items():
        inner = {f"{group}.{key}": value for key, value in node.items()} if isinstance(node, Mapping) else {group: node}
        found |= {
            key: value
            for key, value in inner.items()
            if identifies(key) and key != "data_digest" and not key.endswith(f".{TARGET}")
        }
    return found
