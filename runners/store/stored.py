"""What a results folder holds, under which names, and how its processes show that they live.

    store.json                {"format": N}: written by the first that needs it; a newer one than ours is refused
    runs/<run_id>/            done: config.yaml, summary.json, history.jsonl, ledger.json, environment.json,
                              privacy.md (what it guarantees, in words; older runs have none), checksums.json of all
                              of them; weights.safetensors (with it inputs.json: what makes a row the model's
                              inputs) and scores.npz as results.* says
    runs/<run_id>.running/    begun, perhaps interrupted: config.yaml, history.jsonl, checkpoint.pt
    replaced/<run_id>.<n>/    what `retrain=true` put aside; nothing reads it
    runs/<run_id>.failed/     the same and error.txt: tried again by the next launch, from its checkpoint
    runs/<run_id>.lease.<n>   {"worker": TOKEN}: the highest n holds the run (runners/store/leases.py)
    workers/<token>.json      a worker and what its runs are doing: {host, pid, runs: [{run_id, label, step, …}]}
    sweeps/<token>.json       a launcher: {command, total, run_ids: those not done when it began}
    *s/<token>.lock           held under flock while that process lives; the time of its .json is its last beat
    targets/<target>/<variant>/manifest.json    which runs a table or figure needs, and its drawings; beside it what
                              only the runners can compute for it: plans.csv, or membership.csv and roc.csv
    audits/<method>-<run_id>.json   what `rawls audit` found of a method in a configuration (runners/audit/records.py)
    audits/audit.*, attacks.csv, twins.csv   the same as tables, and a figure
    cache/                    what analysis has read before; can be deleted at any time

Who trains and who only reads (analysis) both have it from here, so this imports nothing of ours, and nothing heavy.
"""

import json
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

FORMAT = 2  # 1 had a lock per run instead of leases, and no store.json
FORMAT_FILE = "store.json"
RUNS, WORKERS, SWEEPS, TARGETS, CACHE = "runs", "workers", "sweeps", "targets", "cache"
REPLACED = "replaced"
AUDITS = "audits"
CONFIG, SUMMARY, HISTORY = "config.yaml", "summary.json", "history.jsonl"
LEDGER, ENVIRONMENT, PRIVACY = "ledger.json", "environment.json", "privacy.md"
WEIGHTS, INPUTS = "weights.safetensors", "inputs.json"
CHECKPOINT, ERROR = "checkpoint.pt", "error.txt"
MANIFEST = "manifest.json"
PLANS, MEMBERSHIP, ROC, STABILITY = "plans.csv", "membership.csv", "roc.csv", "stability.csv"
RUNNING, FAILED = UNFINISHED = ("running", "failed")  # what follows the dot of a run's folder

# What a run is not identified by: where and how it is run, where its files lie, and which sweep asked for it.
NOT_HASHED = frozenset(
    {"device", "engine", "physical_batch", "alone", "tracking", "results", "data", "experiment", "scale", "retrain"}
    | {"dataset.path"}  # of one's own files, which are told by their content
)
DEAD_AFTER_SECONDS = 60.0

# Where the evaluated groups overlap, a summary names them apart from the partition that epsilons are of, with their
# training rows; and scores by group have, in summary and history, a second list of the partition's.
EVALUATED, EVALUATED_SIZES = "evaluated_groups", "evaluated_sizes"
OF_A_GROUP = ("accuracy", "loss", "count")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A living launcher.

    Args:
        total: how many runs it was asked for.
        run_ids: those that were not done when it began.
        since: when that was, by the clock of the file system.
    """

    token: str
    host: str
    pid: int
    command: str
    total: int
    run_ids: tuple[str, ...]
    since: float


def format_of(root: Path) -> int | None:
    """The format of a store; None for one that says nothing: it is of the first one, or new.

    Raises:
        ValueError: it says what cannot be read.
    """
    path = root / FORMAT_FILE
    try:
        told = json.loads(path.read_bytes())["format"]
        if not isinstance(told, int) or told < 1:
            raise ValueError(told)
        return told
    except OSError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f'{path} cannot be read: it should say {{"format": {FORMAT}}}') from error


def from_yaml(text: str | bytes) -> Any:
    """What a config.yaml says."""
    import yaml  # here, for the command line answers without it

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def of_partition(score: str) -> str:
    """What a score by group is called of the partition, where evaluated groups overlap."""
    return f"partition_{score}"


def is_of_evaluated(score: str, kind: str) -> bool:
    """Whether a list in a history's lines of a kind has an entry for each evaluated group.

    What is measured of training batches, or of gradients, and weights of groups are of the partition.
    """
    *where, name = score.split("_")
    own = {*where} <= {"robust", "train", "test", "corrupted"}
    return own and name in OF_A_GROUP and kind in ("evaluation", "gaps")


def identifies(key: str) -> bool:
    """Whether a key of a configuration, joined by dots, is part of what makes a run what it is."""
    parts = key.split(".")
    return not any(".".join(parts[: place + 1]) in NOT_HASHED for place in range(len(parts)))


def mark_of(provenance: str) -> str:
    """What data or weights are, in capitals, if not the paper's: SIMULATED DATA; nothing if they are."""
    kinds = [kind.upper() for kind in provenance.split("+") if kind not in ("real", "plan only")]
    return ", ".join(kind if kind.startswith("STAND-IN") else f"{kind} DATA" for kind in kinds)


def folder_of(root: Path, run_id: str, suffix: str = "") -> Path:
    """Where a finished run lies; or, by their suffix, one that is running or has failed."""
    return root / RUNS / (f"{run_id}.{suffix}" if suffix else run_id)


def manifests(root: Path) -> dict[str, Path]:
    """'target/variant' -> manifest, of every target that was asked for."""
    folder = root / TARGETS
    # Not by rglob, which fails where a folder goes while it looks.
    found = sorted(Path(place) / MANIFEST for place, _, names in os.walk(folder) if MANIFEST in names)
    return {path.parent.relative_to(folder).as_posix(): path for path in found}


def variants(root: Path) -> dict[str, list[Path]]:
    """target -> the manifests of its variants."""
    found: dict[str, list[Path]] = {}
    for name, path in manifests(root).items():
        found.setdefault(name.rpartition("/")[0], []).append(path)
    return found


def target_folder(root: Path, target: str, variant: str) -> Path:
    """Where the manifest and the drawings of a target's variant lie."""
    return root / TARGETS / target / variant


def is_token(text: str) -> bool:
    """Whether a text may be the id of a run or the token of a process: no file's name is made of anything else."""
    return re.fullmatch(r"[0-9a-f]{1,64}", text) is not None


def our_time(folder: Path) -> float:
    """The time for who may write nothing: our clock's, though another machine's may go wrong."""
    return time.time()


def sweeps(root: Path, now: Callable[[Path], float] = our_time) -> list[Sweep]:
    """Every launcher that lives, in the order they began; see `told_by`."""
    names = Sweep.__annotations__.keys()
    return [
        Sweep(**{name: told[name] for name in names} | {"run_ids": tuple(filter(is_token, told["run_ids"]))})
        for told in everyone(root / SWEEPS, now)
        if names <= told.keys()
    ]


def everyone(folder: Path, now: Callable[[Path], float] = our_time) -> Iterator[dict[str, Any]]:
    """What each living process of `workers` or `sweeps` says of itself, in the order they began; see `told_by`."""
    alive = (told_by(folder, token, now) for token in tokens(folder))
    yield from sorted(filter(None, alive), key=lambda told: (told.get("started", 0), told.get("token", "")))


def told_by(folder: Path, token: str, now: Callable[[Path], float]) -> dict[str, Any] | None:
    """What a living process says of itself; None if it is dead, nothing for a file that a power cut tore.

    Args:
        now: the time by which its beats are judged, asked for only where no lock tells.
    """
    try:
        # Opened and then asked for its time: on NFS that is what makes the answer fresh.
        with open(folder / f"{token}.json", "rb") as file:
            beat = os.fstat(file.fileno()).st_mtime
            told = _parsed(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    held = None
    if told.get("boot_id") == boot_id() and told.get("locked"):
        held = is_locked(folder / f"{token}.lock")
    if held is None:
        held = now(folder) - beat <= DEAD_AFTER_SECONDS
    return told if held else None


def is_locked(path: Path) -> bool | None:
    """Whether a living process of this machine holds the flock; None where that cannot be told."""
    try:
        import fcntl  # not everywhere that results are read
    except ImportError:
        return None
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(lock)
    return False


@lru_cache
def boot_id() -> str:
    """The same for all processes of a running machine, and another one after a reboot where the system can tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode():x}"


def tokens(folder: Path) -> list[str]:
    """Of the processes that left a sign of life, dead or alive."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        told = json.loads(content)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
