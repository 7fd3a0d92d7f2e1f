"""What identifies a run: the part of its resolved configuration that its id hashes.

Datasets, models and algorithms are told by the names of their files, not by where their classes lie, so that code can
move. Ids that were recorded before hash where the classes lay then: FROZEN says so for good, and takes no new names.
"""

from collections.abc import Mapping
from typing import Any

from rawls.runners.store.stored import NOT_HASHED

TARGET = "_target_"
FROZEN: dict[str, dict[str, str]] = {
    "owners": {},
    "dataset": {
        "bank_fraud": "datasets.bank_fraud.BankFraud",
        "celeba": "datasets.celeba.CelebA",
        "digits": "datasets.digits.Digits",
        "unbalanced_mnist": "datasets.unbalanced_mnist.UnbalancedMnist",
    },
    "model": {
        "cifar_cnn": "models.cifar_cnn.CifarCnn",
        "digits_cnn": "models.digits_cnn.DigitsCnn",
        "logistic": "models.logistic.Logistic",
        "mnist_cnn": "models.mnist_cnn.MnistCnn",
        "resnet50": "models.resnet50.ResNet50",
        "tabular_mlp": "models.tabular_mlp.TabularMlp",
    },
    "algorithm": {
        "asc": "algorithms.asc.Asc",
        "azb": "algorithms.azb.Azb",
        "azb_prop": "algorithms.azb_prop.AzbProp",
        "azb_weak": "algorithms.azb_weak.AzbWeak",
        "dpsgd": "algorithms.dpsgd.DpSgd",
    },
}


def hashed_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that identifies the run; null says nothing, at any depth."""
    part = _identifying(config, "")
    for group in FROZEN.keys() & part.keys():
        if isinstance(part[group], dict) and TARGET in part[group]:
            name = registered(str(part[group][TARGET]))
            part[group][TARGET] = FROZEN[group].get(name, name)
    return part


def registered(target: str) -> str:
    """What the class of a `_target_` is known by: its file; with its own name unless that is the file's too."""
    *_, file, name = ["", *target.split(".")]
    return file if name.lower() == file.replace("_", "").lower() else f"{file}.{name}"


def _identifying(value: Any, prefix: str) -> Any:
    if type(value) is dict or isinstance(value, Mapping):  # most are dicts, and to ask an ABC takes four times as long
        return {
            key: _identifying(item, f"{prefix}{key}.")
            for key, item in value.items()
            if item is not None and f"{prefix}{key}" not in NOT_HASHED
        }
    return [_identifying(item, f"{prefix}.") for item in value] if isinstance(value, list | tuple) else value
