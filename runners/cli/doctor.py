"""`rawls doctor`: check every file of a results folder, put aside what is damaged, and say what makes it again."""

from collections.abc import Sequence
from pathlib import Path

from rawls.runners.cli.arguments import results_root
from rawls.runners.cli.record import records_here
from rawls.runners.config.errors import ConfigError
from rawls.runners.store.doctor import examine
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import REPLACED


def main(arguments: Sequence[str]) -> int:
    """0 if all is whole, 1 if anything was not, mended or left to do."""
    root = results_root("doctor", arguments)
    if not root.is_dir():
        raise ConfigError(f"results.root={root} is no folder: name one that holds runs")
    mended = left = 0
    for found in examine(root, records_here()):
        mended, left = mended + found.mended, left + (not found.mended)
        print(f"{found.what}: {found.then}", flush=True)
    print(_closing(root, mended, left))
    return int(bool(mended or left))


def _closing(root: Path, mended: int, left: int) -> str:
    whole = len(Store(root).done())
    if not mended and not left:
        return f"results.root={root}: {whole} finished runs, every file as it was written"
    aside = f"; what was damaged lies in {root / REPLACED}" if mended else ""
    return f"results.root={root}: {whole} finished runs are whole; {mended} faults mended, {left} left to do{aside}"
