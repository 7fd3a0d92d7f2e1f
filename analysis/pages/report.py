"""`rawls report`: everything that a results folder found, in one HTML file for those who were not there.

The file asks for nothing outside itself. It works on half a sweep, on one that failed and on an empty folder: it
says then what is so, and what to do next. Tables and figures are those of analysis/draw/render.py.
"""

import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from rawls.analysis.compare.advice import advice
from rawls.analysis.compare.against_paper import DISTANCE_WORDS, KEY, LIMIT
from rawls.analysis.compare.first_method import paired
from rawls.analysis.compare.leaderboards import leaderboards
from rawls.analysis.draw.audits import Audits
from rawls.analysis.draw.budget_texts import titled
from rawls.analysis.draw.drawing import Drawing, put, text_file
from rawls.analysis.draw.kinds.ranking import table_of
from rawls.analysis.draw.stamps import TRY_IT, headline, notices, progress
from rawls.analysis.draw.tables import Cell, Table
from rawls.analysis.draw.target_states import drawn, row_of, state, unreadable
from rawls.analysis.draw.titles import dataset_title
from rawls.analysis.metrics.privacy_spent import privacy
from rawls.analysis.pages import html
from rawls.analysis.pages.markdown import markdown
from rawls.analysis.pages.origins import failures, made_by, material
from rawls.analysis.read import settings as all_settings
from rawls.analysis.read.audit_records import audits
from rawls.analysis.read.load import Store, load
from rawls.analysis.read.manifest import Manifest, without_places

FILE = Path("report") / "index.html"
MOST_BOARDS = 12


@dataclass(frozen=True, kw_only=True)
class _Target:
    """A manifest and what came of it; or why there is none, in `row`."""

    ident: str
    row: dict[str, Any]
    manifest: Manifest | None = None
    runs: pd.DataFrame | None = None
    drawing: Drawing | None = None

    @property
    def name(self) -> str:
        variant = self.row.get("variant")
        return f"{self.row['target']} [{variant}]" if variant else str(self.row["target"])

    @property
    def title(self) -> str:
        return f"{self.name}: {self.row['title']}" if self.row.get("title") else self.name


def write(
    results_root: str | Path, manifests: Iterable[Mapping[str, Any] | Path], *, now: datetime | None = None
) -> Path:
    """Write the report of these targets under `results_root`; see `text` for the arguments.

    Returns:
        The file, which takes the place of an earlier one when it is whole.
    """
    content = text(results_root, manifests, now=now)
    path = Path(results_root) / FILE
    put(path.parent, {path.name: text_file(content)})
    return path


def text(
    results_root: str | Path, manifests: Iterable[Mapping[str, Any] | Path], *, now: datetime | None = None
) -> str:
    """The report as HTML.

    Args:
        results_root: the folder that holds `runs`.
        manifests: paths of manifest.json, or the same content as a mapping for a target that never ran.
        now: the time it is said to be made at.
    """
    root = Path(results_root)
    store = load(root)
    targets = [_read(place, item, store) for place, item in enumerate(manifests)]
    parts = [("overview", "What there is", _overview(store, targets))]
    if ranked := _methods(root, store, targets):
        parts.insert(0, ("methods", "Which method?", ranked))
    parts += [(target.ident, target.title, _section(store, target)) for target in targets]
    if records := audits(root):
        parts.append(("audit", "Audit", _audit(Audits.of(records))))
    parts.append(("failures", "Failures", _failures(root, store, targets)))
    parts.append(("made", "How this was made", _made(store, now or datetime.now(UTC))))
    body = "\n".join(
        f'<section aria-labelledby="{ident}">{html.heading(2, title, ident=ident)}{content}</section>'
        for ident, title, content in parts
    )
    variants = Counter(target.row["target"] for target in targets)
    short = {
        target.ident: target.name if variants[target.row["target"]] > 1 else target.row["target"] for target in targets
    }
    contents = [(ident, short.get(ident, title)) for ident, title, _ in parts]
    return html.page("rawls: what the runs found", contents, body)


def _read(place: int, item: Mapping[str, Any] | Path, store: Store) -> _Target:
    ident = f"target-{place + 1}"
    try:
        manifest = Manifest.read(item) if isinstance(item, Path) else Manifest.of(item)
    except ValueError as problem:
        return _Target(ident=ident, row=unreadable(item, problem))
    runs, drawing = drawn(manifest, store.of(manifest.run_ids))
    row = row_of(manifest, runs, drawing.verdict)
    return _Target(ident=ident, row=row, manifest=manifest, runs=runs, drawing=drawing)


def _methods(root: Path, store: Store, targets: Sequence[_Target]) -> str:
    """A leaderboard for each data set and budget at which several private methods are finished."""
    names = {
        run_id: method
        for target in targets
        if target.runs is not None
        for run_id, method in zip(target.runs["run_id"], target.runs["method"], strict=True)
    }
    known = all_settings.load(root, store.runs.loc[store.runs["status"] == "done", "run_id"])
    boards = [board for board in leaderboards(store, names, known) if sum(place.rank > 0 for place in board.places) > 1]
    shown = []
    for board in boards[:MOST_BOARDS]:
        name = f"{dataset_title(board.dataset)}, scale {board.scale}"
        runs = pd.concat([place.runs for place in board.places]).assign(changed="")
        told = advice(board.places, of=f"{name}, {titled(board.budget)}")
        shown += [html.paragraph(told), html.table(table_of(name, board.places, runs))]
    if len(boards) > MOST_BOARDS:
        shown.append(html.paragraph(f"{len(boards) - MOST_BOARDS} more contests are not shown: the dashboard has all."))
    return "".join(shown)


def _overview(store: Store, targets: Sequence[_Target]) -> str:
    rows = []
    for target in targets:
        row = target.row
        command = f"`{without_places(target.manifest.command)}`" if target.manifest else ""
        runs = f"{row['done']}\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}{row['needed']}"
        texts = [target.name, row.get("title") or "", state(row), runs, row["data"], row["verdict"], command]
        rows.append([Cell(text=text) for text in texts])
    table = Table(
        caption="Every table and figure, how far it is, and the command that makes it, or what is missing of it.",
        header=["Table or figure", "Title", "State", "Runs", "Data", "Verdict", "Command"],
        rows=rows,
        num_labels=7,
    )
    shown = html.table(table, links=[f"#{target.ident}" for target in targets]) if rows else ""
    return "".join(html.paragraph(notice, kind="notice") for notice in _notices(store, targets)) + shown


def _notices(store: Store, targets: Sequence[_Target]) -> list[str]:
    """What must be known before anything is read: what is missing here as a whole, and what to do next."""
    runs = store.runs
    if runs.empty:
        return [f"No run is stored in this results folder yet. `{TRY_IT}` makes a first table in half a minute."]
    done = runs[runs["status"] == "done"]
    found = []
    if done.empty:
        found.append(f"No run is finished: {progress(runs)}. {_next_of(runs)}")
    elif len(done) < len(runs):
        found.append(f"Not all that was begun is finished: {progress(runs)}. {_next_of(runs)}")
    if not done.empty and (done["provenance"] == "simulated").all():
        found.append(
            "Everything here comes from SIMULATED DATA: it shows that the methods run, not how good they are. "
            f"{_real_data(done)}"
        )
    if not targets:
        found.append("No table or figure was asked for: `rawls targets` lists what there is.")
    return found


def _next_of(runs: pd.DataFrame) -> str:
    """What to do about runs that are not done."""
    advice = []
    if (runs["status"] == "failed").any():
        advice.append("why runs failed is said below; once that is mended, the same command trains them again.")
    if (runs["status"] == "running").any():
        advice.append("`rawls status` says which of them train now; the same command goes on with the others.")
    if (runs["status"] == "damaged").any():
        advice.append("what is damaged is said below; the same command puts it aside and trains it anew.")
    return " ".join(text[0].upper() + text[1:] if text[0] != "`" else text for text in advice)


def _real_data(runs: pd.DataFrame) -> str:
    names = runs.loc[runs["provenance"] == "simulated", "dataset"].dropna().unique()
    commands = " and ".join(f"`rawls data {name}`" for name in names)
    return f"{commands} fetches the real files or says where to put them; then the same command trains on them."


def _section(store: Store, target: _Target) -> str:
    manifest, runs, drawing = target.manifest, target.runs, target.drawing
    if manifest is None or runs is None or drawing is None:
        return html.paragraph(f"{target.row['verdict']}. `rawls reproduce TARGET` writes it anew.", kind="notice")
    # That runs are missing, the verdict says already.
    boxes = [notice for notice in notices(runs) if not notice.startswith("UNFINISHED")] + [_next(manifest, runs)]
    parts = [
        html.paragraph(f"Verdict: {drawing.verdict}.", kind="verdict"),
        html.paragraph(f"Command: `{without_places(manifest.command)}`"),
        *(html.paragraph(text, kind="notice") for text in boxes if text),
    ]
    done = runs[runs["status"] == "done"]
    if not done.empty or drawing.svg is not None:
        parts += [html.heading(3, "Result"), _result(manifest, runs, drawing)]
    if not runs.empty:
        parts += [html.heading(3, "What was real and what simulated"), html.table(material(runs))]
    if not done.empty:
        parts += [html.heading(3, "What made it"), html.table(made_by(store.root, done))]
        parts += [html.heading(3, "Privacy"), _privacy(store, manifest, runs)]
    return "\n".join(parts)


def _next(manifest: Manifest, runs: pd.DataFrame) -> str:
    """What to do next about a target; empty when nothing is left to do."""
    done = runs[runs["status"] == "done"]
    if (done["provenance"] == "simulated").any():
        return f"Next: {_real_data(done)}"
    if len(runs) and done.empty and (runs["status"] == "missing").all():
        return f"Next: nothing of it has run; `{without_places(manifest.command)}` trains it."
    if len(done) < len(runs):
        left = f"{len(runs) - len(done)} of {len(runs)} runs are left"
        advice = f"Next: {left}; `{without_places(manifest.command)}` trains those only."
        return " ".join(text for text in (advice, _next_of(runs)) if text)
    return ""


def _result(manifest: Manifest, runs: pd.DataFrame, drawing: Drawing) -> str:
    """Figure first, then tables, and what is said of them."""
    parts = []
    title = headline(manifest.title, runs)
    if drawing.svg is not None:
        stamped = "".join(f" {notice}." for notice in notices(runs))
        alt = f"Figure: {title}.{stamped} The table after it has its numbers."
        spread = "" if runs.empty else " A band or bar is one standard deviation over seeds."
        caption = f"{title}.{spread}{stamped}"
        parts.append(html.image(drawing.svg(), alt, caption))
    for table in drawing.tables:
        judged = any(cell.mark for row in table.rows for cell in row)
        parts.append(html.table(table, key=html.key(KEY, DISTANCE_WORDS) if judged else ""))
    said = drawing.summary.replace(manifest.command, without_places(manifest.command))
    parts += [html.paragraph(line) for line in said.splitlines() if line]
    if manifest.draw["kind"] == "accuracy_table" and (differences := paired(manifest, runs)):
        parts.append(html.table(differences))
    for number, table in enumerate(drawing.tables, start=1):
        name = "LaTeX of the table" if len(drawing.tables) == 1 else f"LaTeX of table {number}"
        parts.append(html.folded(f"{name} (booktabs)", html.preformatted(table.latex(), name), kind="source"))
    if drawing.svg is not None:
        render = without_places(manifest.command).replace("rawls reproduce", "rawls render", 1)
        parts.append(html.paragraph(f"As PDF with embedded fonts, and PNG: `{render}`.", kind="about"))
    return "\n".join(parts)


def _privacy(store: Store, manifest: Manifest, runs: pd.DataFrame) -> str:
    found = privacy(store, runs, manifest.methods)
    if found is None:
        return html.paragraph("The finished runs do not say what they spent.")
    parts = [html.table(found.epsilons)]
    if found.groups:
        parts.append(html.folded("Epsilon of each group", html.table(found.groups)))
    if found.owners:
        parts.append(html.folded("Epsilon of each owner", html.table(found.owners)))
    if found.releases:
        parts.append(html.table(found.releases))
    else:
        parts.append(html.paragraph("No release is recorded: nothing was trained, or the ledgers are not here."))
    if found.assumptions:
        parts.append(html.paragraph("What the guarantees take for granted, and what they leave out:"))
        parts.append(html.bullets(found.assumptions))
    for title, sheet in found.sheets.items():
        parts.append(html.folded(f"Privacy sheet: {title}", markdown(sheet, level=4)))
    return "\n".join(parts)


def _audit(found: Audits) -> str:
    """How far attacks get under claims and proofs, and who caught the broken twins."""
    caption = f"{found.caption()} A bar is what attacks show, a diamond the paper's claim, a line across the proof."
    return "\n".join(
        [
            html.image(found.svg(), f"Figure: {caption} The table after it has its numbers.", caption),
            html.table(found.table()),
            html.folded("Every bound", html.table(found.every_bound())),
            html.folded("Broken twins, and who caught them", html.table(found.every_twin())),
        ]
    )


def _failures(root: Path, store: Store, targets: Sequence[_Target]) -> str:
    places: dict[str, str] = {}
    for target in targets:
        if target.runs is not None:
            for run_id, method in zip(target.runs["run_id"], target.runs["method"], strict=True):
                places.setdefault(run_id, f"{target.row['target']}, {method}")
    table = failures(root, store.runs, places)
    if table is None:
        return html.paragraph("No run failed." if len(store.runs) else "No run was begun.")
    advice = "A failed run is trained again, from its last checkpoint, by the command that it came from."
    return html.table(table) + html.paragraph(advice)


def _made(store: Store, now: datetime) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in store.runs["status"].value_counts().items()) or "no run"
    packages = ", ".join(f"{name} {version(name)}" for name in ("pandas", "matplotlib"))
    datasets = ", ".join(map(dataset_title, store.runs["dataset"].dropna().unique()))
    return html.bullets(
        [
            f"Written on {now:%Y-%m-%d at %H:%M} UTC by `rawls report` (Python {platform.python_version()}, "
            f"{packages}), which trains nothing: it reads {counts}" + (f" on {datasets}." if datasets else "."),
            "Numbers are mean ± sample standard deviation over seeds; n is given where seeds are missing, and an empty "
            "group is not counted, never 0.",
            "WGA is the lowest accuracy of any group, AVG the mean of the group accuracies; both of the last iterate, "
            "unless a table says otherwise.",
            f"A cell is reproduced if its mean lies within {LIMIT:g} pooled standard deviations of the paper's. What "
            "comes from simulated data, a subset or changed settings is stamped, and not judged.",
            "Which run is which, with the hash of its configuration, is in `runs.csv` beside each table of "
            "`rawls render`.",
        ]
    )
