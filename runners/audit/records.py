"""One method's audit from beginning to end, and its record: made once for a configuration and the code it runs."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from rawls.runners.config.compose import run_id
from rawls.runners.config.specifications import build, name_of
from rawls.runners.store.checksums import sealed, unsealed
from rawls.runners.store.environment import ROOT
from rawls.runners.store.files import write_together
from rawls.runners.store.stored import AUDITS

# What an audit's numbers depend on, beside the method's own file.
CODE = ("accounting", "algorithms/core", "datasets", "models", "runners/audit", "runners/training/setup.py")


def made(config: Mapping[str, Any]) -> dict[str, Any]:
    """Attack the method that is configured, show its twins to attacks and contracts, and judge."""
    from rawls.runners.audit.attacks import attacked
    from rawls.runners.audit.canary_game import CONFIDENCE
    from rawls.runners.audit.configured import Configured
    from rawls.runners.audit.findings import verdict_on
    from rawls.runners.audit.rejection import caught, twins_of

    began, code = time.perf_counter(), code_of(config)  # as it is now, whatever is written meanwhile
    case = Configured.of(config)
    findings = attacked(case)
    twins = [caught(twin, contract, of_twin) for twin, (contract, of_twin) in twins_of(case.name).items()]
    budget = case.plan.budget
    return {
        "method": case.name,
        "dataset": name_of(config["dataset"]),
        "provenance": case.prepared.provenance,
        "model": name_of(config["model"]),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "neighbouring": str(budget.neighbouring),
        "run_id": run_id(config),
        "code": code,
        "confidence": CONFIDENCE,
        "findings": [asdict(finding) for finding in findings],
        "twins": [asdict(twin) for twin in twins],
        "verdict": verdict_on(findings, twins),
        "seconds": time.perf_counter() - began,
    }


def path_of(root: Path, config: Mapping[str, Any]) -> Path:
    return root / AUDITS / f"{name_of(config['algorithm'])}-{run_id(config)}.json"


def known(root: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The record of an audit of this configuration by this code, if there is one."""
    try:
        record = unsealed(json.loads(path_of(root, config).read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError):
        return None
    return record if record.get("code") == code_of(config) else None


def keep(root: Path, config: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    """Write the record, which takes the place of an older one when it is whole."""
    path = path_of(root, config)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_together(path, json.dumps(sealed(json.loads(json.dumps(record))), indent=1) + "\n")


def code_of(config: Mapping[str, Any]) -> str:
    """A digest of the code of the rooms that every audit runs through, and of the method's own classes."""
    method = type(build(config["algorithm"], "algorithm"))
    own = {inspect.getfile(kind) for kind in method.__mro__ if kind.__module__ not in ("builtins", "abc", "typing")}
    digest = sha256(_shared_code())
    for path in sorted(own):
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=1)
def _shared_code() -> bytes:
    digest = sha256()
    for part in CODE:
        where = ROOT / part
        within = sorted(path for path in where.rglob("*") if path.suffix in (".py", ".c"))
        for path in [where] if where.is_file() else within:
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.digest()
