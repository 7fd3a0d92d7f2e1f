"""Trains one fleet after another in one process, and tells the launcher how it goes.

A stop is asked for by a signal and answered inside `report`, as a KeyboardInterrupt: the only place where a
run may be interrupted, because there it stands between two steps and can be saved.
"""

import importlib
import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rawls.runners.process import lifecycle, memory
from rawls.runners.schedule.progress import Message
from rawls.runners.store.results_store import LeaseLost, ResultsError, RunFolder, Store

TRAIN_FLEET = "rawls.runners.training.fleet:train_fleet"
SECONDS_BETWEEN_REPORTS = 0.2

Report = Callable[[Message], None]
TrainFleet = Callable[[list[dict[str, Any]], list[RunFolder], Report], None]


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run to be trained; runs of equal `fleet_key` can be trained together."""

    run_id: str
    config: dict[str, Any]
    label: str
    fleet_key: str


Fleet = tuple[PlannedRun, ...]


def load(task: str) -> TrainFleet:
    """The function that trains a fleet, given as `module:function`."""
    module, _, name = task.partition(":")
    return getattr(importlib.import_module(module), name)


def train(
    fleet: Fleet, *, store: Store, train_fleet: TrainFleet, send: Report, asked_to_stop: Callable[[], bool]
) -> list[str]:
    """Train the runs of a fleet that this process can claim; whatever is sent can also be read from the worker's file.

    Returns:
        The ids of the runs to be tried again one by one: those of a fleet that failed as a whole, or that lost a run
        to another worker.

    Raises:
        ResultsError: results can no longer be written; the runs keep their last checkpoints.
    """
    planned = {run.run_id: run for run in fleet}
    folders: list[RunFolder] = []
    last_sent: dict[str, float] = {}

    def report(message: Message) -> None:
        run_id, progress = message["run_id"], message["event"] == "progress"
        now = time.monotonic()
        if not progress or now - last_sent.get(run_id, -1.0) >= SECONDS_BETWEEN_REPORTS:
            last_sent[run_id] = now
            labelled = {**message, "label": planned[run_id].label}
            store.leases.note(labelled)
            send(labelled)
        if progress and asked_to_stop():
            raise KeyboardInterrupt

    try:
        for run in fleet:
            folder = store.claim(run.run_id, run.config)
            if folder is not None:
                folders.append(folder)
                store.leases.note({"run_id": run.run_id, "label": run.label, "event": "claimed"})
        if folders and not asked_to_stop():
            configs = [planned[folder.run_id].config for folder in folders]
            return _train(memory.halving(train_fleet), configs, folders, report)
        return []
    finally:
        for folder in folders:
            folder.release()
            state = store.state(folder.run_id)
            event = state if state in ("done", "failed") else "interrupted"
            report({"run_id": folder.run_id, "event": event})


def _train(
    train_fleet: TrainFleet, configs: list[dict[str, Any]], folders: list[RunFolder], report: Report
) -> list[str]:
    """Call `train_fleet` and judge the runs that it left unfinished; see `train`."""
    try:
        train_fleet(configs, folders, report)
    except KeyboardInterrupt:
        return []
    except ResultsError:
        raise
    except LeaseLost:
        return [folder.run_id for folder in folders if folder.held and folder.still_held()]
    except Exception as error:
        unfinished = [folder for folder in folders if folder.held]
        if len(unfinished) > 1:
            return [folder.run_id for folder in unfinished]
        for folder in unfinished:
            _fail(folder, error)
    for folder in folders:
        if folder.held:
            _fail(folder, RuntimeError("train_fleet returned without finishing this run"))
    return []


def _fail(folder: RunFolder, error: BaseException) -> None:
    with suppress(LeaseLost):  # then it is no failure of ours
        folder.fail(error)


def train_elsewhere(fleet: Fleet, root: Path, task: str) -> list[str]:
    """Train a fleet in this process, which a cluster has just started; see `train` for what it returns.

    SIGINT and SIGTERM save the runs. How it goes is read from the store (runners/schedule/status.py).
    """
    with lifecycle.Stop() as stop:
        lifecycle.prepare_process()
        return train(
            fleet,
            store=Store(root),
            train_fleet=load(task),
            send=lambda message: None,
            asked_to_stop=lambda: stop.requests > 0,
        )


def serve(connection: Connection, parent: int, root: Path, task: str) -> None:
    """The life of a worker process: fleets come in, messages go out, until the connection closes."""
    lifecycle.die_with_parent(parent)

    def send(message: Message) -> None:
        try:
            connection.send(message)
        except OSError:  # nobody listens any more
            os._exit(1)

    with lifecycle.Stop() as stop:
        try:
            lifecycle.prepare_process()
            train_fleet, store = load(task), Store(root)
            while True:
                again = train(
                    connection.recv(),
                    store=store,
                    train_fleet=train_fleet,
                    send=send,
                    asked_to_stop=lambda: stop.requests > 0 or os.getppid() != parent,
                )
                send({"event": "free", "again": again})
        except EOFError:
            return
        except ResultsError as error:
            send({"event": "fatal", "error": error})
        except Exception:
            send({"event": "fatal", "error": RuntimeError(f"a worker broke down:\n{traceback.format_exc()}")})
