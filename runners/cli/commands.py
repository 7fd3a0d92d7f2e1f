"""The console command `rawls`. Nothing heavy is imported before a subcommand is called."""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rawls.runners.cli import completion
from rawls.runners.cli.arguments import plain, quoted
from rawls.runners.cli.planned import OF_NO_PAPER, planned, told
from rawls.runners.config.errors import ConfigError, guarded, nearest
from rawls.runners.store.stored import AUDITS, MANIFEST, variants


@dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand: how it is called, what it does in a line, and more for its own --help."""

    call: Callable[[list[str]], int]
    usage: str
    summary: str
    more: str = ""


def train(arguments: list[str]) -> int:
    from rawls.runners.train import main as train_main

    return train_main(arguments)


def targets(arguments: list[str]) -> int:
    from rawls.analysis.draw.target_states import status as status_of
    from rawls.runners.config.compose import choices, look_also_in

    overrides = look_also_in(arguments)
    plans = [planned(target, overrides) for target in choices("experiment") if target not in OF_NO_PAPER]
    asked: list[dict[str, object] | Path] = []
    drawn = variants(plans[0].root)
    for plan in plans:
        others = [path for path in drawn.get(str(plan.target), []) if path.parent.name != plan.variant]
        asked += [told(plan), *others]
    asked += [path for target in OF_NO_PAPER for path in drawn.get(target, [])]
    table = status_of(plans[0].root, asked).drop(columns="title")
    rows = [list(table.columns), *table.astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return 0


def report(arguments: list[str]) -> int:
    from rawls.analysis.pages.report import write
    from rawls.runners.config.compose import choices, look_also_in

    given = look_also_in(arguments)
    names = [text for text in given if "=" not in text]
    overrides = [text for text in given if "=" in text]
    if wrong := [text for text in overrides if not text.startswith(("results.root=", "hydra."))]:
        raise ConfigError(f"rawls report does not know '{wrong[0]}': name targets, and set results.root=FOLDER")
    root = Path(next((text.partition("=")[2] for text in overrides if text.startswith("results.")), "results"))
    if not root.is_dir():
        raise ConfigError(f"results.root={root} is no folder: `rawls reproduce TARGET` makes one, or name another")
    found = variants(root)
    every = list(dict.fromkeys([*choices("experiment"), *found]))
    if unknown := [name for name in names if name not in every]:
        raise ConfigError(f"unknown target '{unknown[0]}': {nearest(unknown[0], every)}")
    asked: list[dict[str, object] | Path] = []
    for name in [name for name in every if name in names or (not names and (name in found or name not in OF_NO_PAPER))]:
        # What ran says more than the plan of a command that nobody gave; without it, the plan says what is missing.
        asked += found.get(name) or [told(planned(name, list(map(quoted, overrides))))]
    print(f"Written: {write(root, asked)}")
    return 0


def wandb(arguments: list[str]) -> int:
    from rawls.runners.tracking import wandb_sync, wandb_workspace

    match arguments:
        case ["sync", *rest]:
            return wandb_sync.main(rest)
        case ["workspace", *rest]:
            return wandb_workspace.main(rest)
    raise ConfigError(f"rawls wandb can do two things: rawls {wandb_sync.USAGE}, rawls {wandb_workspace.USAGE}")


def compare(arguments: list[str]) -> int:
    from rawls.analysis.compare.print_comparison import compare_text

    # A variant's name may hold '=', but only after its target's '/'.
    names = [text for text in arguments[:2] if "=" not in text.partition("/")[0]]
    if len(names) < 2:
        raise ConfigError("name two sweeps, methods or runs first: rawls compare A B [KEY=VALUE ...]")
    root, overrides = "results", []
    for text in arguments[2:]:
        key, _, value = text.partition("=")
        if key == "results.root" and value:
            root = value
        else:
            overrides.append(text)
    print(compare_text(root, names[0], names[1], overrides))
    return 0


def status(arguments: list[str]) -> int:
    from rawls.runners.schedule.status import main as status_main

    return status_main(arguments)


def dashboard(arguments: list[str]) -> int:
    from rawls import conf
    from rawls.analysis.pages.dashboard.serve import main as dashboard_main

    return dashboard_main(arguments, sorted(Path(conf.__file__).with_name("experiment").rglob("*.yaml")))


def audit(arguments: list[str]) -> int:
    from rawls.analysis.draw.attacks import draw_attack
    from rawls.analysis.draw.audits import Audits
    from rawls.analysis.read.audit_records import audits
    from rawls.runners.audit import command
    from rawls.runners.audit.findings import BROKEN
    from rawls.runners.audit.named import attack_by_name

    if any(argument.startswith("attack=") for argument in arguments):
        name, attacked = attack_by_name(arguments)
        text, drawn = draw_attack(attacked.folder)
        print(f"{text}\n{name}: {attacked.seconds:.0f} s\nWritten:")
        print("\n".join(f"  {path}" for path in [*attacked.files, *drawn]))
        return 0
    found = command.audit(arguments)
    if found.records:
        print(f"\n{Audits.of(found.records).table().markdown()}")
        written = Audits.of(audits(found.root)).write(found.root / AUDITS)
        print("\n".join(["Written:", *(f"  {path}" for path in written)]))
    broken = [record["method"] for record in found.records if record["verdict"] in BROKEN]
    return 1 if broken or found.refusals else 0


def _in(module: str, function: str = "main") -> Callable[[list[str]], int]:
    """A command that lies in a module of its own, imported when it is called."""
    return lambda arguments: int(getattr(importlib.import_module(f"rawls.runners.{module}"), function)(arguments) or 0)


_OVERRIDES = """
OVERRIDES are those of `rawls train`: dataset=digits, scale=smoke|laptop|paper, privacy=eps8, seed=0,1,
results.root=FOLDER, device=cpu, … They win over what the target says; where its blocks differ in a key
(algorithm=asc,dpsgd), they select blocks."""

COMMANDS = {
    "train": Command(
        call=train,
        usage="train [-m] [KEY=VALUE ...]",
        summary="train one run, or with -m a sweep (a Hydra app: `rawls train --help`)",
    ),
    "reproduce": Command(
        call=_in("cli.reproduce", "reproduce"),
        usage="reproduce TARGET [OVERRIDES ...]",
        summary="run what is missing of a table or figure, draw it, compare with the paper",
        more=_OVERRIDES,
    ),
    "choose": Command(
        call=_in("cli.reproduce", "choose"),
        usage="choose dataset=NAME privacy.epsilon=NUMBER [OVERRIDES ...]",
        summary="which method to take: every one that fits your data at one budget, ranked, with advice",
        more="""
OVERRIDES are those of `rawls train`: dataset=table dataset.path=mine.csv dataset.label=income dataset.group=sex,
scale=smoke|laptop, algorithm=asc,dpsgd (these alone), seed=0,1,2,3,4 (more of them tell methods apart), …
Each method has a few settings around the recipe's, and the one of highest validation WGA counts: the choice reads the
validation rows, which no epsilon here covers. It ends with a table, a sentence, and the command that trains the
winner for release.
private=true gives one model instead, with the choice inside epsilon: the best, by a noisy score, of a random number of
tries (privacy.tries=10 in the mean; Papernot and Steinke 2022). The other tries are deleted.""",
    ),
    "render": Command(
        call=_in("cli.reproduce", "render"),
        usage="render TARGET [OVERRIDES ...]",
        summary="draw a table or figure from the runs there are, training nothing",
        more=f"{_OVERRIDES}\nTARGET may also be the {MANIFEST} that an earlier drawing left in its folder.",
    ),
    "targets": Command(
        call=targets,
        usage="targets [OVERRIDES ...]",
        summary="every table and figure: runs done and needed, data, verdict",
        more=_OVERRIDES,
    ),
    "report": Command(
        call=report,
        usage="report [results.root=FOLDER] [TARGETS ...]",
        summary="one HTML file: tables and figures beside the papers', privacy, failures",
        more="\nIt lies in the results folder under report/. TARGETS choose some of what there is.",
    ),
    "wandb": Command(
        call=wandb,
        usage="wandb sync|workspace [results.root=FOLDER]",
        summary="send to W&B what was mirrored offline; make a view that compares methods",
        more="""
sync leaves runs in training for later; what was sent before is not sent again.
workspace [PAPER/TARGET] saves a view in the project that the runs were mirrored to, with panels for WGA, AVG, the
groups, ε and the groups' weights by method: of one target, or of all runs. Calling it again replaces the view.""",
    ),
    "compare": Command(
        call=compare,
        usage="compare A B [KEY=VALUE ...]",
        summary="two sweeps, methods or runs, paired by seed: what differs, and by how much",
        more="""
A and B are targets (asc/table1, or asc/table1/VARIANT), methods (a label of a target: ASC; an algorithm: asc), or
runs (an id, or its beginning). KEY=VALUE chooses among their runs: target=asc/table1 (this target's alone),
dataset=digits, seed=0,1, scale=paper, or any key of their configurations. What a method has one value of under
algorithm or optimizer, it keeps. Runs pair by seed, at equal values of what varies on both sides. With
epoch=best_valid_wga scores are those of the evaluation with the highest validation WGA, instead of the last.""",
    ),
    "status": Command(
        call=status,
        usage="status [results.root=FOLDER]",
        summary="what trains there now, from any terminal: fleets, rates, time left",
        more="\nOn a terminal it goes on until nothing trains.",
    ),
    "doctor": Command(
        call=_in("cli.doctor"),
        usage="doctor [results.root=FOLDER]",
        summary="check every file of a results folder, and put aside what is damaged",
        more="""
Finished runs are held against their checksums, weights too, unfinished ones against their checkpoints, targets and
audits against theirs. What is damaged goes to replaced/, nothing is deleted; a run that was recorded comes back from
its record. It ends with 0 if all was whole, else with 1.""",
    ),
    "dashboard": Command(
        call=dashboard,
        usage="dashboard [results.root=FOLDER]",
        summary="a local web page: papers, targets, comparisons, curves, privacy, runs",
        more="\nServed to this machine, on port 8501 or a free one (port=NUMBER, headless=true, host=NAME of proxies).",
    ),
    "data": Command(
        call=_in("cli.data"),
        usage="data NAME [model=NAME] [data.root=FOLDER]",
        summary="obtain and verify the files of a dataset, and of the frozen part of a model",
    ),
    "sheet": Command(
        call=_in("cli.sheet"),
        usage="sheet [all] [KEY=VALUE ...]",
        summary="the privacy sheet of a method, or of all: who is protected, by how much; trains nothing",
        more="""
KEY=VALUE are overrides of `rawls train`: algorithm=asc dataset=digits privacy=eps8. A run leaves its own sheet, of what
it published, as privacy.md in its folder.
`rawls sheet record` writes the sheets of record and the README's table of methods, in a clone of the suite.""",
    ),
    "budget": Command(
        call=_in("cli.budget"),
        usage="budget OPTIONS | KEY=VALUE ...",
        summary="the noise for an epsilon, the epsilon of a noise: of any run by options, of ours by KEY=VALUE",
    ),
    "audit": Command(
        call=audit,
        usage="audit algorithm=NAME|all | attack=lira|one_run [OPTIONS] [OVERRIDES ...]",
        summary="attack methods as they train: lower bounds on ε under what is claimed and proven",
        more="""
A method is trained thousands of times on neighbouring data sets: at full batch, where the bound is exact, and as it is
configured; attackers see all that is published, or the final model. Its broken twins, one with half of its noise, are
shown to the same attacks and to the contracts: each must be caught. It ends with 1 if a twin is not, or if a bound
passes what is proven; what a paper claims may be refuted, and is named.
OVERRIDES are those of `rawls train`; unless they say otherwise dataset=digits, privacy=eps8, model=logistic, and the
data set's owners for methods that keep some. algorithm=asc,azb names several; `all` takes every private one.
Tables and a figure lie in the results folder under audits/. What was audited before with the same configuration and
code is not audited again; what was interrupted goes on.
Other attacks, whose OVERRIDES are those of `rawls train -m`:
attack=lira: membership, by shadow runs on random halves of the training rows, each attacked by the others. OPTIONS:
shadows=32, half_of=0 (the split's seed), centre=median|mean. They are runs like others: none is trained twice.
attack=one_run: many rows are canaries, in or out by coins of their own. OPTIONS: canaries=500, runs=1,
confidence=0.95, where=anywhere|smallest_group|most_private_owner, record=mislabelled|row|pixel.""",
    ),
    "export": Command(
        call=_in("cli.export", "export"),
        usage="export RUN [to=FOLDER] [results.root=FOLDER]",
        summary="a trained model as a folder that needs no rawls: weights, loader, model card, ledger",
        more="""
RUN is a run's id, the beginning of it, its folder, or what `rawls compare` calls one run. The folder, which must not be
there yet, is named after method, dataset and run unless to= names it. Its MODEL_CARD.md says what the model was trained
on, how well it does for each group, and what it may reveal; load.py loads it with torch and safetensors alone.""",
    ),
    "predict": Command(
        call=_in("cli.export", "predict"),
        usage="predict EXPORT|RUN FILE [out=FILE] [results.root=FOLDER]",
        summary="the class of each row of a table, image of a folder, or input of an array, by a trained model",
        more="""
FILE has the columns that the model was trained on; label and groups may be left out, and if they are there, accuracy by
group is printed. For images it is a folder; else an array (.npy), or inputs, labels and groups (.npz). Answers go to
out=, else to FILE's name with .predictions.csv, in the folder you are in.""",
    ),
    "record": Command(
        call=_in("cli.record"),
        usage="record take [TARGET] | keep TARGET [OVERRIDES ...]",
        summary="runs that others trained already, from the repository to the results folder; or yours into it",
        more=f"""
take puts recorded runs (all, or those that TARGET needs) among yours: dashboard, compare, render and report then show
them, and reproduce trains only what is missing. keep, in a clone, writes the finished runs of TARGET to
analysis/reproduced/runs, a small file each without weights, and its drawing beside them once all are finished.
{_OVERRIDES}""",
    ),
    "bench": Command(
        call=_in("bench.command"),
        usage="bench [step|methods|sweep|plan|store|pages|start]",
        summary="speed and memory against Opacus and plain SGD; of planning, stores, pages, starts",
    ),
}
# These have a --help of their own.
_FORWARDED = ("train", "budget", "bench")
# These take more than a moment before they have something to say.
_SLOW = ("train", "reproduce", "choose", "render", "targets", "report", "sheet", "budget", "export", "predict")
# These read their arguments themselves.
_WITHOUT_HYDRA = ("export", "predict", "report", "wandb", "compare", "status", "doctor", "dashboard", "bench")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; the exit code is 2 for what a user got wrong, 1 for runs that failed."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    return guarded(lambda: _run([text for text in given if text != "--debug"]), debug=debug)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    name, *rest = arguments
    if name == "--version":
        import importlib.metadata

        print(f"rawls {importlib.metadata.version('rawls')}")
        return 0
    if {name, *rest[:1]} & set(completion.FLAGS):  # for who has read Hydra's help, also behind train
        usages = {name: command.usage for name, command in COMMANDS.items()}
        return completion.complete([text for text in arguments if "=" in text], usages)
    if name not in COMMANDS:
        raise ConfigError(f"unknown command '{name}': {nearest(name, COMMANDS)}")
    command = COMMANDS[name]
    if name not in _FORWARDED and {"-h", "--help"} & set(rest):
        print(f"usage: rawls {command.usage}\n\n{command.summary}\n{command.more}".rstrip())
        return 0
    if name in _SLOW and sys.stderr.isatty():
        print(f"rawls {name}: getting ready", file=sys.stderr, flush=True)
    return command.call([plain(text) if name in _WITHOUT_HYDRA else quoted(text) for text in rest])


def help_text() -> str:
    """What `rawls --help` prints."""
    width = max(len(command.usage) for command in COMMANDS.values())
    lines = [f"  {command.usage:{width}}  {command.summary}" for command in COMMANDS.values()]
    return "\n".join(
        [
            "usage: rawls COMMAND ...",
            "",
            "Differentially private, group-fair training: methods, budgets, comparisons with the papers.",
            "",
            *lines,
            "",
            "`rawls COMMAND --help` says more; --debug shows where an error comes from; --version.",
            'Tab completes commands, targets and KEY=VALUE after: eval "$(rawls -sc install=bash)"',
            "Results go to ./results, or where results.root=FOLDER says.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
