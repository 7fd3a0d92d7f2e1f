"""Composes the configuration of a run, checks it, and derives the run's id from it.

Every error is a ConfigError of one sentence (runners/config/errors.py). A run's id is the SHA-256 of what its
numbers depend on (runners/store/identity.py): not where it runs, where its files lie or which sweep asked for it, nor
where code lies, and nothing that is null, so that an option which is off by default can be added
later without changing the id of any earlier run.
"""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import omegaconf
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rawls import conf
from rawls.runners.config import by_rows, chosen, schema
from rawls.runners.config.checked import check_fields
from rawls.runners.config.chosen import Chosen, copied, overlap
from rawls.runners.config.errors import ConfigError, explain, unknown_choice
from rawls.runners.config.kept import Kept
from rawls.runners.config.schema import OPTIONAL_SPECS, SPECS, Config, Privacy
from rawls.runners.config.specifications import build, describe, dump, name_of
from rawls.runners.store.identity import hashed_part

VERSION_BASE = "1.3"
CONFIG_NAME = "config"
CONF = Path(conf.__file__).parent
_folders = [CONF]  # where configurations lie: ours, and the user's own (`look_also_in`)
ID_LENGTH = 16
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
_SEED = re.compile(r"seed=\d{1,9}")
# What composing raises for what a user can get wrong.
NOT_COMPOSED = (HydraException, OmegaConfBaseException, yaml.YAMLError, AssertionError)


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """The configuration that these Hydra overrides make, complete and checked."""
    cfg = _composed(overrides)
    config = resolve(cfg)
    for key in (*SPECS, *OPTIONAL_SPECS, "data_digest"):
        cfg[key] = config[key]
    for key in ("privacy", "schedule"):
        cfg[key].update(config[key])
    return cfg


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain values, complete and checked."""
    return _completed(_resolved(cfg))


def _resolved(cfg: DictConfig) -> dict[str, Any]:
    if found := _from_environment(OmegaConf.to_container(cfg), ""):
        raise ConfigError(
            f"{found} takes its value from the environment, which would be stored with every run: write the value"
        )
    try:
        return OmegaConf.to_container(cfg, resolve=True)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise explained(error, ()) from error


def _from_environment(node: Any, key: str) -> str:
    """The first key whose value asks for a variable of the environment; '' if none does."""
    if isinstance(node, str):
        return key if "$" in node and re.search(r"\$\{\s*oc\.env\b", node) else ""
    parts = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return next(filter(None, (_from_environment(item, f"{key}.{part}".lstrip(".")) for part, item in parts)), "")


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    """Every field of the specifications filled in, every value checked; the argument is changed."""
    method: Mapping[str, Any] = {}
    for group in SPECS:
        if config[group] == MISSING:
            raise ConfigError(f"{group} is not chosen: set {group}=NAME, one of {', '.join(choices(group))}")
        if group == "dataset":  # as it is found today
            spec = _located(build(config[group], group), config)
            config["schedule"] = _scheduled(config["schedule"], spec, config)
            config[group] = dump(spec)
            continue
        described = describe(config[group], group)
        config[group] = copied(described["node"])
        if group == "algorithm":
            method = described
            _check_budget(method, config)
    for group in OPTIONAL_SPECS:
        if config[group] is not None:
            # A method that keeps no owners is the same run whoever they are.
            kept = method["keeps_owners"]
            config[group] = copied(describe(config[group], group)["node"]) if kept else None
            if "epsilons" in (config[group] or {}):  # theirs are the budgets, and the run's own says nothing
                config["privacy"] = config["privacy"] | {"epsilon": None, "noise_multiplier": None}
    check_fields(config, Config, "")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", config["device"]):
        raise ConfigError(f"device={config['device']} must be auto, cpu, cuda or cuda:N")
    return config


def _check_budget(method: Mapping[str, Any], config: dict[str, Any]) -> None:
    """One of epsilon and noise for a private method, unless owners bring theirs.

    An open one has no budget, whatever was composed for its sweep.
    """
    privacy = config["privacy"]
    given = [key for key in ("epsilon", "noise_multiplier") if privacy[key] is not None]
    if not method["private"]:
        config["privacy"] = {**dataclasses.asdict(Privacy(epsilon=None)), "secure": privacy["secure"]}
    elif not given and not (method["keeps_owners"] and "epsilons" in (config["owners"] or {})):
        name = name_of(config["algorithm"])
        raise ConfigError(f"{name} is private: set privacy.epsilon, or privacy.noise_multiplier, to a number")
    elif len(given) > 1:
        values = " and ".join(f"privacy.{key}={privacy[key]}" for key in given)
        raise ConfigError(f"{values} are two budgets: set one of them to null")


def _located(spec: Any, config: dict[str, Any]) -> Any:
    """The dataset once it says what its data are: neither a twin nor an edited file may share the id of a run."""
    if config["schedule"]["plan_only"]:
        return spec
    root, asked = Path(config["data"]["root"]), config["data_digest"]
    if getattr(spec, "provenance", "") is None:
        spec = dataclasses.replace(spec, provenance=spec.found(root))
    try:
        found = spec.digest(root)
    except OSError:  # not there yet, as `rawls data` would have it; whoever loads them says what is missing
        found = None
    if asked not in (None, found):
        raise ConfigError(f"data_digest={asked} is not that of the data under data.root={root} ({found or 'pinned'})")
    config["data_digest"] = found
    return spec


def _scheduled(schedule: dict[str, Any], dataset: Any, config: dict[str, Any]) -> dict[str, Any]:
    """What is null follows: batch size and epochs from the training rows, evaluations from the epochs."""
    found = dict(schedule)
    if None in (found["batch_size"], found["epochs"]):
        if found["plan_only"]:
            raise ConfigError(
                "schedule.batch_size and schedule.epochs follow from the training rows where they are null, and "
                "schedule.plan_only=true reads none: give both"
            )
        rows = _training_rows(dataset, Path(config["data"]["root"]), config["data_digest"])
        found["batch_size"] = found["batch_size"] or by_rows.batch_size(rows)
        found["epochs"] = found["epochs"] or by_rows.epochs(rows, found["batch_size"])
    found["evaluations"] = found["epochs"] if found["evaluations"] is None else found["evaluations"]
    return found


@functools.lru_cache(maxsize=64)
def _training_rows(dataset: Any, root: Path, digest: str | None) -> int:
    """How many a run trains on, whatever its seed."""
    return len(dataset.load(root).splits(0).train)


def hashed(config: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a run."""
    plain = OmegaConf.to_container(config, resolve=True) if isinstance(config, DictConfig) else config
    return hashed_part(plain)  # type: ignore[arg-type]


def run_id(config: DictConfig | Mapping[str, Any]) -> str:
    """16 hexadecimal digits that depend on `hashed(config)` alone."""
    return hashlib.sha256(_canonical(hashed(config)).encode()).hexdigest()[:ID_LENGTH]


def look_also_in(arguments: Sequence[str]) -> list[str]:
    """Find configurations in the folder of `--config-dir` too, from now on; returns the other arguments."""
    others, rest = [], iter(arguments)
    del _folders[1:]
    for text in rest:
        flag, _, value = text.partition("=")
        if flag in ("--config-dir", "-cd"):
            _folders[1:] = [Path(value or next(rest, "")).absolute()]
        else:
            others.append(text)
    for memory in (choices, composer, _kept):
        memory.cache_clear()
    return others


@functools.lru_cache
def choices(group: str = "") -> tuple[str, ...]:
    """The names that a group offers; of '' the names of the groups."""
    found: set[str] = set()
    for root in _folders:
        if group:
            paths = (root / group).rglob("*.yaml")
            found |= {path.relative_to(root / group).with_suffix("").as_posix() for path in paths}
            continue
        paths = (path for parent in (root, root / "hydra") for path in parent.glob("*") if path.name != "hydra")
        found |= {path.relative_to(root).as_posix() for path in paths if any(path.rglob("*.yaml"))}
    return tuple(sorted(found))


class Composer:
    """Composes many configurations: Hydra once per set of choices, then each run's values on a copy.

    Equal to `compose` followed by `resolve`, ten times faster.

    Args:
        base: overrides of every configuration.
        specs: specifications that no file describes, by group, in place of those that overrides choose.
    """

    def __init__(self, base: Sequence[str] = (), specs: Mapping[str, Any] | None = None) -> None:
        self._base = tuple(base)
        self._specs = {group: dump(spec) for group, spec in (specs or {}).items()}
        self._chosen: dict[tuple[str, ...], Chosen] = {}
        self._resolved: dict[tuple[str, ...], dict[str, Any]] = {}
        self._of_any_seed: dict[tuple[str, ...], dict[str, Any]] = {}

    def __call__(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The resolved configuration; do not change it, it is shared."""
        key = tuple(overrides)
        if key not in self._resolved:
            self._resolved[key] = self._with_seed(key)
        return self._resolved[key]

    def _with_seed(self, overrides: tuple[str, ...]) -> dict[str, Any]:
        """The configuration: another seed's, where the same was composed before and no key follows from the seed."""
        seeds = [text for text in overrides if text.lstrip("+~").startswith("seed")]
        if len(seeds) != 1 or not _SEED.fullmatch(seeds[0]) or any("$" in text for text in overrides):
            return self._resolve(overrides)
        others = tuple(text for text in overrides if text != seeds[0])
        if others in self._of_any_seed:
            return self._of_any_seed[others] | {"seed": int(seeds[0].partition("=")[2])}
        config = self._resolve(overrides)
        found = self._chosen.get((*self._base, *(text for text in others if not _sets_value(text))))
        if found is not None and not found.refers_to("seed"):
            self._of_any_seed[others] = config
        return config

    def _resolve(self, overrides: tuple[str, ...]) -> dict[str, Any]:
        values = tuple(text for text in overrides if _sets_value(text))
        others = [text for text in overrides if text not in values]
        if _given_twice(values, others):
            return self._complete(_resolved(_composed([*self._base, *overrides])))
        taken = (*self._base, *others)
        if taken not in self._chosen:
            kept = _kept(_places(taken))
            self._chosen[taken] = Chosen(taken, compose=_composed, resolve=_resolved, kept=kept)
        found = self._chosen[taken]
        try:
            plain = found.plain_with(values)
            if plain is not None:
                return self._complete(plain)
            cfg = found.composed_with(values)
        except NOT_COMPOSED:
            # Again as a whole, for an error that names the override.
            cfg = _composed([*self._base, *overrides])
        return self._complete(_resolved(cfg))

    def _complete(self, plain: dict[str, Any]) -> dict[str, Any]:
        return _completed(plain | copied(self._specs))


def _given_twice(values: Sequence[str], others: Sequence[str]) -> bool:
    """Whether a value and an addition (`++key=2`) speak of one key: then their order matters, and the last wins."""
    added = [text.lstrip("+").partition("=")[0] for text in others if text.startswith("+")]
    return any(overlap(text.partition("=")[0], key) for text in values for key in added)


@functools.lru_cache(maxsize=1)
def _kept(places: tuple[Path, ...]) -> Kept | None:
    """Compositions of configurations from these folders, which later processes need not make again."""
    if not places:
        return None

    def files() -> dict[str, Path]:
        found = {
            f"{number} {path.relative_to(root)}": path for number, root in enumerate(places) for path in _yamls(root)
        }
        return found | {path.name: path for path in map(Path, (__file__, chosen.__file__, schema.__file__))}

    return Kept("compositions", files, hydra.__version__, omegaconf.__version__)


def _yamls(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.yaml") if path.is_file()]


def _places(overrides: Iterable[str]) -> tuple[Path, ...]:
    """The folders of configurations that these overrides are composed from; none where others may have a say."""
    given = [text for text in overrides if text.startswith("hydra")]
    with hydra_ready():
        path = GlobalHydra.instance().config_loader().get_search_path().get_path()
    ours = {f"pkg://{conf.__name__}", *(f"file://{folder}" for folder in _folders[1:])}
    others = [part.path for part in path if part.provider not in ("hydra", "schema") and part.path not in ours]
    return () if given or others else tuple(_folders)


@functools.lru_cache(maxsize=1)
def composer(base: tuple[str, ...] = ()) -> Composer:
    """The composer of this process: what was planned need not be composed again to be launched."""
    return Composer(base)


def _sets_value(text: str) -> bool:
    """Whether an override gives one key of ours a value, and chooses or adds nothing."""
    key, _, value = text.partition("=")
    plain = re.fullmatch(r"[A-Za-z_][\w.]*", key) is not None and not value.startswith("{")
    return plain and key not in choices() and key.partition(".")[0] != "hydra" and not key.endswith("_target_")


@contextmanager
def hydra_ready() -> Iterator[None]:
    """Inside a Hydra application, its own search path; else ours."""
    if GlobalHydra.instance().is_initialized():
        yield
    else:
        with hydra.initialize_config_module(conf.__name__, version_base=VERSION_BASE, job_name="rawls"):
            yield


def launcher_settings(overrides: Sequence[str]) -> dict[str, Any]:
    """The node `hydra.launcher`, as the overrides among these that are Hydra's own have it."""
    cfg = _composed([text for text in overrides if text.startswith("hydra")], hydra_too=True)
    return _resolved(cfg.hydra.launcher)


def _composed(overrides: Sequence[str], *, hydra_too: bool = False) -> DictConfig:
    more = [f"hydra.searchpath=['file://{folder}']" for folder in _folders[1:]]
    refuse_deletions(overrides)
    try:
        with hydra_ready():
            return hydra.compose(CONFIG_NAME, overrides=[*more, *overrides], return_hydra_config=hydra_too)
    except (*NOT_COMPOSED, ValueError) as error:
        raise explained(error, overrides) from error


def refuse_deletions(overrides: Sequence[str]) -> None:
    """Raise a ConfigError if one of them takes a key of ours away (`~seed`): a run needs every one.

    What somebody tuned (`~tuned`) may be left out: the recipe's values are there.
    """
    for text in overrides:
        key = text[1:].partition("=")[0].partition("@")[0]
        if text.startswith("~") and key != "tuned" and not key.startswith("hydra"):
            value = "NAME" if key in choices() else "VALUE"
            raise ConfigError(f"'{text}' takes {key} away, and a run needs every key: set {key}={value}, or {key}=null")


def explained(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """What Hydra or OmegaConf could not do with these overrides, as one sentence."""
    if isinstance(error, yaml.YAMLError):
        return ConfigError(f"a configuration is no plain YAML: {error}")
    if isinstance(error, AssertionError):  # OmegaConf's, for a key below one that is null
        below = [text for text in overrides if re.match(r"\+*\w+\.", text)]
        if not below:
            raise error
        key = below[0].lstrip("+").partition(".")[0]
        return ConfigError(f"'{below[0]}' sets a key of {key}, and none is chosen: choose {key}=NAME too")
    for group, _, value in (text.partition("=") for text in overrides):
        if group in choices() and (value in ("", "null") or value.startswith("[")):
            return ConfigError(f"{group}={value} chooses nothing: choose one of {', '.join(choices(group))}")
        if group in choices() and re.fullmatch(r"-?[\d.]+", value):  # for Hydra no name at all
            return ConfigError(unknown_choice(f"{group}/{value}", choices))
    return ConfigError(explain(error, keys=lambda: _keys(overrides), choices=choices))


def _keys(overrides: Sequence[str]) -> list[str]:
    """All keys under the choices of these overrides, as far as they can be composed."""
    chosen = [text for text in overrides if text.partition("=")[0] in choices() and "," not in text]
    with hydra_ready():
        for attempt in (chosen, []):
            try:
                cfg = hydra.compose(CONFIG_NAME, overrides=attempt)
            except NOT_COMPOSED:
                continue
            return list(_paths(OmegaConf.to_container(cfg), ""))
    return []


def _paths(node: Any, prefix: str) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _paths(value, f"{prefix}{key}.")
