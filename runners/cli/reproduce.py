"""`rawls reproduce`, `choose` and `render`: plan, train what is missing, draw; by return values.

Here the command line hands drawing to analysis, imported when it is called.
"""

from pathlib import Path

from rawls.runners.cli.next_steps import next_steps, release_steps
from rawls.runners.cli.planned import CHOICE, named_target, planned
from rawls.runners.config.compose import launcher_settings, look_also_in
from rawls.runners.schedule import launcher
from rawls.runners.schedule.launcher import Outcome
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import MANIFEST, target_folder
from rawls.runners.sweeps.computed import compute
from rawls.runners.sweeps.experiments import SweepPlan, write_manifest


def reproduce(arguments: list[str]) -> int:
    plan, outcome = _reproduced(*named_target(arguments))
    if not outcome.interrupted:
        print(next_steps(plan.root, plan.runs, target=f"{plan.target}/{plan.variant}"))
    return outcome.exit_code


def choose(arguments: list[str]) -> int:
    from rawls.analysis.draw.kinds.ranking import leaders

    plan, outcome = _reproduced(CHOICE, look_also_in(arguments))
    if not outcome.interrupted:
        taken = leaders(target_folder(plan.root, CHOICE, plan.variant) / MANIFEST)
        print(next_steps(plan.root, plan.runs, target=f"{CHOICE}/{plan.variant}"))
        print(release_steps([run for run in plan.runs if run.run_id in taken]))
    return outcome.exit_code


def render(arguments: list[str]) -> int:
    if arguments and arguments[0].endswith(MANIFEST):
        _draw(None, Path(arguments[0]))
        return 0
    plan = planned(*named_target(arguments), fit=True)
    _draw(plan, write_manifest(plan, plan.root))
    return 0


def _reproduced(target: str, overrides: list[str]) -> tuple[SweepPlan, Outcome]:
    backend = launcher.backend_of(launcher_settings(overrides))
    plan = planned(target, overrides, fit=True)
    Store(plan.root).check()
    manifest = write_manifest(plan, plan.root)
    configs = [run.config for run in plan.runs]
    outcome = launcher.train(configs, backend, command=plan.command) if configs else Outcome()
    if not outcome.interrupted:
        compute(plan, manifest.parent)
        _draw(plan, manifest)
    return plan, outcome


def _draw(plan: SweepPlan | None, manifest: Path) -> None:
    """Draw a target, say where it lies, and mirror it as its plan says; a manifest alone says nothing of tracking."""
    from rawls.analysis.draw.render import render as render_manifest

    rendered = render_manifest(manifest)
    print(rendered.text)
    print("\n".join(["Written:", *(f"  {path}" for path in rendered.files)]))
    if plan is not None:
        from rawls.runners.tracking.drawn_targets import mirror

        mirror(plan.config, manifest, rendered.files, rendered.verdict)
