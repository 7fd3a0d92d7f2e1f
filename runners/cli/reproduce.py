"""`rawls reproduce`, `choose` and `render`: plan, train what is missing, draw; by return values.

Here the command line hands drawing to analysis, imported when it is called.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rawls.runners.cli.next_steps import next_steps, release_steps
from rawls.runners.cli.planned import CHOICE, PRIVATE_CHOICE, named_target, planned
from rawls.runners.config.compose import launcher_settings, look_also_in
from rawls.runners.config.errors import RunsFailed
from rawls.runners.schedule import launcher
from rawls.runners.schedule.launcher import Outcome
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import MANIFEST, target_folder
from rawls.runners.sweeps.computed import compute
from rawls.runners.sweeps.experiments import SweepPlan, write_manifest

PRIVATELY = "private=true"


def reproduce(arguments: list[str]) -> int:
    plan, outcome = _reproduced(*named_target(arguments))
    if not outcome.interrupted:
        print(next_steps(plan.root, plan.runs, target=f"{plan.target}/{plan.variant}"))
    return outcome.exit_code


def choose(arguments: list[str]) -> int:
    from rawls.analysis.draw.kinds.ranking import leaders

    given = look_also_in(arguments)
    if PRIVATELY in given:
        return _choose_privately([text for text in given if text != PRIVATELY])
    plan, outcome = _reproduced(CHOICE, given)
    if not outcome.interrupted:
        taken = leaders(target_folder(plan.root, CHOICE, plan.variant) / MANIFEST)
        print(next_steps(plan.root, plan.runs, target=f"{CHOICE}/{plan.variant}"))
        print(release_steps([run for run in plan.runs if run.run_id in taken]))
    return outcome.exit_code


def _choose_privately(overrides: list[str]) -> int:
    """One model instead of a table: whatever else was tried stays unseen."""
    from rawls.runners.sweeps.private_choice import choose_privately
    from rawls.runners.train import result_of

    backend = launcher.backend_of(launcher_settings(overrides))
    plan = planned(PRIVATE_CHOICE, overrides, fit=True)
    Store(plan.root).check()

    def train(configs: Sequence[dict[str, Any]]) -> None:
        outcome = launcher.train(configs, backend, command=f"rawls {CHOICE} {PRIVATELY}")
        if outcome.exit_code:
            raise RunsFailed(outcome.exit_code)

    choice = choose_privately(plan, train)
    print(result_of(choice.config))
    print(choice.told())
    return 0


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
