"""Real processes in a gloo group, for tests: each calls one function, and what it returns comes back."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PATIENCE_SECONDS = 120


def in_processes(size: int, function: Callable[..., Any], *arguments: Any, answers: int | None = None) -> list[Any]:
    """What `function(*arguments)` returns in each of so many processes; it is to be found by its module and name.

    Args:
        answers: how many of them, from the first on, will live to tell; by default all.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(size):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_serve, args=(theirs, rank, size, folder, function, arguments))
            process.start()
            theirs.close()
            started.append((process, ours))
        try:
            return [_result(ours) for _, ours in started[:answers]]
        finally:
            for process, _ in started:
                process.kill()
                process.join()


def _result(connection: Connection) -> Any:
    assert connection.poll(PATIENCE_SECONDS), "a process did not answer"
    error, result = pickle.loads(connection.recv_bytes())
    assert error is None, error
    return result


def _serve(
    connection: Connection, rank: int, size: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    meeting = (Path(folder) / "meeting").as_uri()
    timeout = timedelta(seconds=PATIENCE_SECONDS)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size, timeout=timeout)
    answer: tuple[str | None, Any]
    try:
        answer = None, function(*arguments)
    except BaseException as error:
        answer = repr(error), None
    connection.send_bytes(pickle.dumps(answer))  # by value: torch would have tensors fetched from this process
    dist.destroy_process_group()
