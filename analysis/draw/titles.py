"""How datasets and metrics are written for people. A name that is not here is shown as it is stored."""

DATASETS = {
    "digits": "Digits",
    "unbalanced_mnist": "Unbalanced MNIST",
    "celeba": "CelebA",
    "celeba_blond": "CelebA (blond)",
    "celeba_hair": "CelebA (hair)",
    "celeba_eyeglasses": "CelebA (eyeglasses)",
    "bank_fraud": "Bank Fraud",
    "adult": "Adult",
    "adult_census": "Adult (census)",
    "dutch": "Dutch",
    "blog": "Blog",
    "utkface": "UTKFace",
    "inat": "iNaturalist 2017",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar100_fv": "CIFAR-100-FV",
    "cardiotocography": "Cardiotocography",
    "surnames": "Surnames",
    "pneumonia": "Pneumonia",
    "mnli": "MultiNLI",
    "civilcomments": "CivilComments",
    "worst_group": "Synthetic worst group",
    "table": "Own table",
    "image_folder": "Own images",
}
METRICS = {
    "wga": "WGA",
    "avg": "AVG",
    "total": "Total",
    "disparity": "Disparity",
    "train_wga": "training WGA",
    "test_wga": "test WGA",
    "worst": "Worst group",
    "pi": "π",
    "pi_of_means": "π (of means)",
    "pi_of_seeds": "π (of seeds)",
    "demographic_parity": "Demographic parity",
    "equal_opportunity": "Equal opportunity",
    "equalised_odds": "Equalised odds",
    "equalised_odds_worst": "Equalised odds (worst)",
    "accuracy": "Accuracy",
    "loss": "Loss",
    "gradient_norm": "Gradient norm",
    "gradient_variance": "Gradient variance",
}
METRICS_IN_WORDS = {"wga": "Worst-group accuracy", "avg": "Average group accuracy"}
DASH = "–"


def dataset_title(name: str) -> str:
    return DATASETS.get(name, name.replace("_", " "))


def metric_title(name: str) -> str:
    return METRICS.get(name, name)
