"""`rawls sheet`: privacy sheets without training, and those of record with the README's table of methods."""

from collections.abc import Sequence
from pathlib import Path

from rawls.accounting.sheets.claimed import status
from rawls.algorithms.core.about import PAPERS, about
from rawls.runners.config.compose import choices, composer, look_also_in
from rawls.runners.config.errors import ConfigError
from rawls.runners.training.privacy_sheet import claim_before, privacy_sheet
from rawls.runners.training.setup import Prepared, prepare_run

RECORD = ("dataset=digits", "privacy=eps8", "owners=digits")
FOLDER = Path("analysis") / "reproduced" / "privacy"
README = Path("README.md")
BEGIN, END = "<!-- `rawls sheet record` writes this table -->\n", "<!-- end of the table -->\n"


def main(arguments: Sequence[str]) -> int:
    match look_also_in(arguments):
        case ["record"]:
            record_of = record(Path())
            for path, content in record_of.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
                print(path)
            for left_over in set(FOLDER.glob("*.md")) - record_of.keys():
                left_over.unlink()
        case ["all", *overrides]:
            if chosen := [text for text in overrides if text.startswith("algorithm=")]:
                raise ConfigError(f"rawls sheet all takes every method: leave {chosen[0]} out, or leave out all")
            for name in choices("algorithm"):
                print(_sheet([f"algorithm={name}", *overrides])[1])
        case overrides:
            if wrong := [text for text in overrides if "=" not in text]:
                raise ConfigError(f"rawls sheet does not know '{wrong[0]}': give all, record, or algorithm=NAME")
            print(_sheet(overrides)[1], end="")
    return 0


def record(root: Path) -> dict[Path, str]:
    """What the sheets of record and the README must hold: of every method, on digits at epsilon 8.

    Args:
        root: of the repository, where the README is read.
    """
    found, rows = {}, []
    for name in choices("algorithm"):
        prepared, text = _sheet([f"algorithm={name}", *RECORD])
        words = about(prepared.method)
        if words.missing:
            raise ConfigError(words.missing)
        path = FOLDER / f"{name}.md"
        found[root / path] = text
        told = status(prepared.plan, claim_before(prepared))
        rows.append(f"| `{name}` | `{words.file}` | {words.paper} | {told} | [sheet]({path.as_posix()}) |")
    text = (root / README).read_text(encoding="utf-8") if (root / README).is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ConfigError("README.md has no table of methods here: call rawls sheet record in a clone of the suite")
    table = ["| algorithm | file | paper | privacy on digits at ε = 8 | |", "|---|---|---|---|---|", *rows]
    about_papers = f"{', '.join(PAPERS)}: the five papers, whose titles are in `CITATION.cff`."
    found[root / README] = "\n".join([before + BEGIN, *table, "", f"{about_papers}\n{END}{after}"])
    return found


def _sheet(overrides: Sequence[str]) -> tuple[Prepared, str]:
    """The run that these overrides make, planned, and its sheet."""
    config = composer()(overrides)
    prepared = prepare_run(config)
    # Owners mean nothing to most methods.
    said = [text for text in overrides if config["owners"] is not None or not text.startswith("owners=")]
    made = f"This is a plan: `rawls sheet {' '.join(said)}` made it, and nothing was trained."
    return prepared, privacy_sheet(config, prepared, made)
