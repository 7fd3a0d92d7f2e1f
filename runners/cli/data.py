"""`rawls data`: obtain and verify what a dataset, and a frozen encoder, need; show what one's own files hold."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rawls.runners.cli.planned import no_name
from rawls.runners.config.compose import compose, look_also_in
from rawls.runners.config.specifications import build
from rawls.runners.training.features import obtain_weights


def main(arguments: Sequence[str]) -> int:
    given = look_also_in(arguments)
    if not given or "=" in given[0]:
        raise no_name("dataset", "dataset")
    name, *overrides = given
    config = compose([f"dataset={name}", *overrides])
    root, dataset, model = Path(config.data.root), build(config.dataset, "dataset"), build(config.model, "model")
    told = [dataset.findings] if dataset.findings else []
    print("".join(f"{text}\n" for text in told), end="", flush=True)
    # Weights first: data that must be put there by hand, or of which a part is at hand, do not keep them away.
    for obtain in (partial(obtain_weights, model), dataset.fetch):
        paths = obtain(root)
        print("".join(f"{path}: verified\n" for path in paths), end="", flush=True)
        told += map(str, paths)
    if not told:
        print(f"{name} needs no file")
    return 0
