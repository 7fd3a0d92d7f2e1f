"""How datasets and metrics are written for people. A name that is not here is shown as it is stored."""

DATASETS = {
    "digits": "Digits",
    "unbalanced_mnist": "Unbalanced MNIST",
    "celeba": "CelebA",
    "bank_fraud": "Bank Fraud",
}
METRICS = {"wga": "WGA", "avg": "AVG"}
METRICS_IN_WORDS = {"wga": "Worst-group accuracy", "avg": "Average group accuracy"}
DASH = "–"


def dataset_title(name: str) -> str:
    return DATASETS.get(name, name.replace("_", " "))


def metric_title(name: str) -> str:
    return METRICS.get(name, name)
