"""`rawls audit`: attack methods as they train, show their broken twins to attacks and contracts, and judge each.

An audit trains the same configuration thousands of times, so it takes a linear model and an epsilon of which something
can be seen, unless it is told otherwise. Methods are audited side by side, one to a core; what was audited before with
the same configuration and code is not audited again.
"""

import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rawls.runners.audit import records
from rawls.runners.config.compose import choices, composer, look_also_in
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import build, name_of
from rawls.runners.process import lifecycle

ALL = "all"
UNLESS_GIVEN = {"dataset": "digits", "privacy": "eps8", "model": "logistic"}
FAILED = "not audited"


@dataclass(frozen=True, kw_only=True)
class Audited:
    """What came of the methods that were asked for.

    Args:
        root: the results folder.
        records: of the methods that were audited, now or before.
        refusals: why others could not be, in a sentence.
    """

    root: Path
    records: list[dict[str, Any]]
    refusals: dict[str, str]


def audit(arguments: Sequence[str]) -> Audited:
    """Audit the methods that the arguments name; a record is kept of each as soon as it is made."""
    names, overrides = _asked(look_also_in(arguments))
    configs: dict[str, dict[str, Any]] = {}
    refusals: dict[str, str] = {}
    for name in names:
        try:
            config = _configured(name, overrides)
        except ConfigError as error:
            if len(names) == 1:
                raise
            refusals[name] = str(error)
            continue
        if not build(config["algorithm"], "algorithm").private:
            if len(names) == 1:
                raise ConfigError(f"{name} trains without privacy: there is nothing to audit")
            print(f"{name}: trains without privacy, so there is nothing to audit", flush=True)
            continue
        configs[name] = config
    root = Path(next(iter(configs.values()))["results"]["root"]) if configs else Path("results")
    found: dict[str, dict[str, Any]] = {}
    for name, config in configs.items():
        if record := records.known(root, config):
            found[name] = record
            print(f"{told(record)}; audited before, with this configuration and code", flush=True)
    began = time.monotonic()
    left = {name: config for name, config in configs.items() if name not in found}
    for done, (name, record) in enumerate(_audited(left), start=1):
        if "error" in record:
            refusals[name] = record["error"]
            print(f"{name}: {FAILED}: {record['error']}", flush=True)
        else:
            records.keep(root, configs[name], record)
            found[name] = record
            print(f"{told(record)} ({done} of {len(left)}, {time.monotonic() - began:.0f} s)", flush=True)
    if len(names) == 1 and refusals:
        raise ConfigError(next(iter(refusals.values())))
    return Audited(root=root, records=[found[name] for name in configs if name in found], refusals=refusals)


def told(record: Mapping[str, Any]) -> str:
    """A record in a line."""
    most = max(record["findings"], key=lambda finding: finding["lower_bound"])
    twins = [twin["twin"] for twin in record["twins"]]
    missed = [twin["twin"] for twin in record["twins"] if not twin["caught_by"]]
    caught = f"not caught: {', '.join(missed)}" if missed else f"{len(twins)} of {len(twins)} twins caught"
    return (
        f"{record['method']}: {record['verdict']}; epsilon is {most['lower_bound']:.3g} or more ({most['attack']}, "
        f"{most['setting']}), {most['proven']:.3g} is proven; {caught}; {record['seconds']:.0f} s"
    )


def _asked(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The methods, and what else is to be composed."""
    names, overrides = list[str](), list[str]()
    for text in arguments:
        key, _, value = text.partition("=")
        if text == ALL:
            names += choices("algorithm")
        elif key == "algorithm" and value:
            names += choices("algorithm") if value == ALL else value.split(",")
        elif "=" in text:
            overrides.append(text)
        else:
            raise ConfigError(f"rawls audit does not know '{text}': name algorithm=NAME, or all, and KEY=VALUE")
    if not names:
        raise ConfigError("name a method first: rawls audit algorithm=NAME, or rawls audit all")
    return list(dict.fromkeys(names)), overrides


def _configured(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """The method's configuration, with owners where it keeps some and its dataset has some to try."""
    given = {text.partition("=")[0] for text in overrides}
    usual = [f"{key}={value}" for key, value in UNLESS_GIVEN.items() if key not in given]
    asked = [f"algorithm={name}", *usual, *overrides]
    config = composer()(asked)
    dataset = name_of(config["dataset"])
    if build(config["algorithm"], "algorithm").keeps_owners and "owners" not in given and dataset in choices("owners"):
        config = composer()([*asked, f"owners={dataset}"])
    return config


def _audited(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Records as they are made; or the `error` that stood in the way."""
    if not configs:
        return
    fresh = multiprocessing.get_context("spawn")
    workers = min(lifecycle.num_cores(), len(configs))
    with ProcessPoolExecutor(max_workers=workers, mp_context=fresh, initializer=lifecycle.prepare_process) as pool:
        jobs = {pool.submit(_made, config): name for name, config in configs.items()}
        try:
            for job in as_completed(jobs):
                try:
                    record = job.result()
                except BrokenProcessPool:  # all that were left fail with it
                    record = {"error": "a process was killed, perhaps for want of memory: run the same command again"}
                yield jobs[job], record
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _made(config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return records.made(config)
    except ValueError as error:
        return {"error": " ".join(str(error).split())}
