"""Private training that is fair to groups, from Python.

    import rawls

    fitted = rawls.fit(module, (inputs, labels), groups=sexes, method="asc", epsilon=1)
    fitted.model, fitted.epsilon, fitted.accuracy["test"]["wga"], fitted.history, fitted.ledger, fitted.privacy
    fitted.export("mine")  # weights, a program that needs no rawls, a loader, the model card
    rawls.choose(module, (inputs, labels), groups=sexes, epsilon=1)  # every method: .table, .advice, .fit()

    rawls.export("3f2a", "mine")  # the same of a run of `rawls train`
    rawls.load_model("mine").predict(frame)  # .predict_proba; of a folder of export, or a run
    rawls.budget(epsilon=1, population=50_000, batch=256, steps=2_000)["noise_multiplier"]

    store = rawls.load("results")  # what `rawls train` and `rawls reproduce` left: store.runs, store.history, …
    print(rawls.describe("runs"))  # what its columns mean

The folders are `rawls.accounting`, `rawls.datasets`, `rawls.models`, `rawls.algorithms`, `rawls.runners` and
`rawls.analysis`; what they hold is imported from their modules. Nothing is loaded before it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rawls import accounting as accounting
    from rawls import algorithms as algorithms
    from rawls import analysis as analysis
    from rawls import datasets as datasets
    from rawls import models as models
    from rawls import runners as runners
    from rawls.accounting.accountants import epsilon as epsilon
    from rawls.accounting.calibration.find_noise import calibrate as calibrate
    from rawls.analysis.read.columns import describe as describe
    from rawls.analysis.read.load import Store as Store
    from rawls.analysis.read.load import load as load
    from rawls.runners.budget import budget as budget
    from rawls.runners.cli.choose import Ranking as Ranking
    from rawls.runners.cli.choose import choose as choose
    from rawls.runners.fit import Fitted as Fitted
    from rawls.runners.fit import fit as fit
    from rawls.runners.release.export import Exported as Exported
    from rawls.runners.release.export import export as export
    from rawls.runners.release.model import Model as Model
    from rawls.runners.release.model import load_model as load_model

__all__ = [
    "accounting",
    "algorithms",
    "analysis",
    "budget",
    "calibrate",
    "choose",
    "datasets",
    "describe",
    "epsilon",
    "export",
    "Exported",
    "fit",
    "Fitted",
    "load",
    "load_model",
    "Model",
    "models",
    "Ranking",
    "runners",
    "Store",
]

_LIES_IN = {
    "Exported": "rawls.runners.release.export",
    "Fitted": "rawls.runners.fit",
    "Model": "rawls.runners.release.model",
    "Ranking": "rawls.runners.cli.choose",
    "Store": "rawls.analysis.read.load",
    "budget": "rawls.runners.budget",
    "calibrate": "rawls.accounting.calibration.find_noise",
    "choose": "rawls.runners.cli.choose",
    "describe": "rawls.analysis.read.columns",
    "epsilon": "rawls.accounting.accountants",
    "export": "rawls.runners.release.export",
    "fit": "rawls.runners.fit",
    "load": "rawls.analysis.read.load",
    "load_model": "rawls.runners.release.model",
}


def __getattr__(name: str) -> Any:
    if name in _LIES_IN:
        return getattr(import_module(_LIES_IN[name]), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
