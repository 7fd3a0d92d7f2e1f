"""What a person would call a run: in progress, in the table of failures, in errors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rawls.runners.config.specifications import name_of
from rawls.runners.store.identity import hashed_part


def label_of(config: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> str:
    """Algorithm, data, budget and seed; and what else tells the run from others like it."""
    others = [f"{name}={_text(value)}" for name, value in (values or {}).items()]
    return ", ".join([*_kind(config), *others, f"seed {config['seed']}"])


def labels_of(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The runs of a sweep: each with the values in which those of its algorithm, data and budget differ."""
    settings = [dict(_leaves(hashed_part(config))) for config in configs]
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, config in enumerate(configs):
        alike.setdefault(_kind(config), []).append(number)
    labels = [""] * len(configs)
    for numbers in alike.values():
        keys = dict.fromkeys(key for number in numbers for key in settings[number] if key != "seed")
        differ = [key for key in keys if len({repr(settings[number].get(key)) for number in numbers}) > 1]
        short = [key.rpartition(".")[2] for key in differ]
        names = [name if short.count(name) == 1 else key for key, name in zip(differ, short, strict=True)]
        for number in numbers:
            values = {name: settings[number].get(key) for key, name in zip(differ, names, strict=True)}
            labels[number] = label_of(configs[number], values)
    return labels


def label_together(labels: Sequence[str]) -> str:
    """Several runs as one: their kinds, what all of them share, and how many they are."""
    if len(labels) == 1:
        return labels[0]
    parts = [label.split(", ") for label in labels]
    kinds = list(dict.fromkeys(first for first, *_ in parts))
    named = " + ".join(kinds if len(kinds) < 3 else [kinds[0], f"{len(kinds) - 1} others"])
    shared = [part for part in parts[0][1:] if all(part in others for others in parts)]
    return ", ".join([named, *shared, f"{len(labels)} runs"])


def _kind(config: Mapping[str, Any]) -> tuple[str, ...]:
    dataset, algorithm = name_of(config["dataset"]), name_of(config["algorithm"])
    return f"{algorithm} on {dataset}", budget_of(config)


def budget_of(config: Mapping[str, Any]) -> str:
    """'ε=8', 'noise 1.1', 'ε=1 to 5 by owner', or 'open'."""
    if told := (config.get("owners") or {}).get("epsilons"):
        epsilons = told.values() if isinstance(told, Mapping) else told
        return f"ε={min(epsilons):g} to {max(epsilons):g} by owner"
    privacy = config["privacy"]
    if privacy["epsilon"] is not None:
        return f"ε={privacy['epsilon']:g}"
    noise = privacy.get("noise_multiplier")
    return "open" if noise is None else f"noise {noise:g}"


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(value: Any) -> str:
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
