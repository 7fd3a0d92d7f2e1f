"""`rawls export` and `rawls predict`: a trained model leaves, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rawls.runners.config.errors import ConfigError, nearest

_ROOT = "results.root"


def export(arguments: Sequence[str]) -> int:
    (run,), options = _read(arguments, "export", ("a run",), (_ROOT, "to"))
    from rawls.runners.release.export import export as write

    exported = write(_named(run, options), options.get("to"), results=options.get(_ROOT, "results"))
    print("\n".join(["Written:", *(f"  {exported.folder / name}" for name in exported.files)]))
    print("".join(f"{text}\n" for text in exported.warnings), end="")
    print(
        f"Next:\n  rawls predict {exported.folder} FILE  # the class of each row, and accuracies where it says labels"
    )
    return 0


def predict(arguments: Sequence[str]) -> int:
    (named, given), options = _read(arguments, "predict", ("an exported folder or a run", "a file"), (_ROOT, "out"))
    from rawls.runners.process.lifecycle import prepare_process

    prepare_process()
    from rawls.runners.release.model import load_model
    from rawls.runners.release.predict import predict_file

    path = Path(given).expanduser()
    out = Path(options.get("out", f"{path.resolve().stem}.predictions.csv"))
    model = load_model(_named(named, options), results=options.get(_ROOT, "results"))
    answered = predict_file(model, path, out)
    print(f"{out}: the class of {answered.rows:,} rows, and its probability")
    print("".join(f"- {text}\n" for text in answered.notes), end="")
    if accuracies := answered.accuracies(model.groups):
        print("\n".join(["Accuracy by group:", *(f"  {line}" for line in accuracies)]))
    return 0


def _read(
    arguments: Sequence[str], command: str, wanted: Sequence[str], keys: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """What a command line names, and the options that it sets."""
    options = {}
    names = []
    for text in arguments:
        key, equals, value = text.partition("=")
        if equals and key in keys and value:
            options[key] = value
        elif equals and not Path(text).exists():
            raise ConfigError(f"rawls {command} does not know '{text}': {nearest(key, keys)}")
        else:
            names.append(text)
    if len(names) != len(wanted):
        raise ConfigError(
            f"rawls {command} takes {' and '.join(wanted)}, and {' and '.join(f'{key}=…' for key in keys)}"
        )
    return names, options


def _named(name: str, options: dict[str, str]) -> str:
    """The folder or the id of the one run that a name means: its own, or a label as `rawls compare` takes.

    Raises:
        ConfigError: it means none, or several runs.
    """
    root = Path(options.get(_ROOT, "results"))
    if Path(name).expanduser().is_dir() or all(letter in "0123456789abcdef" for letter in name) and len(name) > 3:
        return name
    from rawls.analysis.compare.find_runs import Names
    from rawls.analysis.read.load import load

    side = Names(load(root)).side(name)
    runs = side.runs.drop_duplicates("run_id")
    if len(runs) != 1:
        told = [f"{row.run_id} (seed {row.seed:g})" for row in runs.itertuples() if row.seed == row.seed]
        raise ConfigError(f"{side.what} has {len(runs)} runs: give the id of one, {', '.join(told[:16])}")
    return str(runs.iloc[0]["run_id"])
