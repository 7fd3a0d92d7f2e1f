"""What every column of `rawls.load()` means: print(rawls.describe("runs")), or this file.

A missing number is NaN, a missing text None or NaN. Accuracies are fractions.
"""

from difflib import get_close_matches

_COLUMNS: dict[str, dict[str, str]] = {
    # one row per run, whatever its state
    "runs": {
        "run_id": "16 hexadecimal digits, the hash of the run's configuration; its folder is runs/<run_id>",
        "status": "'done', 'running' (or interrupted), 'failed', or 'damaged' (`error` says how)",
        "dataset": "name of the dataset",
        "model": "name of the model",
        "algorithm": "name of the method",
        "scale": "'smoke', 'laptop' or 'paper': the scale whose command made the run first",
        "provenance": "'real', 'subset', 'stand-in data' (others than the paper's) or 'simulated'; 'stand-in' or "
        "'subset+stand-in' where weights stand in for the paper's; or 'plan only': calibrated, not trained",
        "error": "first line of error.txt, or what of a finished run is damaged",
        "private": "whether it was trained with privacy; False: an open method, whose epsilons are NaN; None if the "
        "summary does not say",
        "seed": "seed of initialisation, split and sampling",
        "epsilon_target": "the epsilon that was asked for; NaN where the noise was given, and of open methods",
        "steps": "steps of the schedule",
        "seconds": "time spent in training, evaluations included; of runs that trained together, an equal share each",
        "fleet": "how many runs shared them, itself counted; NaN where it was not written down",
        "test_wga": "lowest group accuracy on the test split, last iterate",
        "test_avg": "mean of the group accuracies (not of the samples) there",
        "valid_wga": "the same on the validation split",
        "valid_avg": "the same on the validation split",
        "excess_population": "of a linear model on a synthetic problem (dataset=worst_group): how far the largest risk "
        "of a group lies above the least that it can be in the ball; NaN elsewhere",
        "excess_empirical": "the same of the losses on the training rows",
        "excess_at_zero": "the same of the population where all parameters are 0: what is known without the data",
        "epsilon_reported": "what the method claims: the plan's largest epsilon of the groups it was calibrated for; "
        "NaN if the summary does not say",
        "epsilon_max": "what is proven: the plan's epsilon of the least protected group, which the ledger was found to "
        "keep",
        "epsilon_spent": "the largest epsilon of any group that the ledger came to; below the plan where that states "
        "an upper bound, or the run ended early: then no guarantee by itself",
        "claim_epsilon": "what the paper would print for the run, by `claim_rule`; without one, epsilon_reported. NaN "
        "where the rule gives no finite one",
        "claim_delta": "the delta of that",
        "claim_rule": "'gdp_clt', 'accepted_only', …: the paper's own rule; None where it prints what is proven",
        "claim_meaning": "the rule in a sentence",
        "claim_note": "what went into it, or what it leaves out in this run",
        "accountant": "'rdp', 'pld' or 'prv'",
        "neighbouring": "'add_remove' or 'replace_one': which datasets count as neighbours",
        "unit": "whose privacy is meant, one 'example'",
        "search": "'tight' or 'opacus': how the noise was searched",
        "noise_multiplier": "calibrated noise std / norm bound of one record",
        "epsilon": "the plan's epsilon, the largest over groups",
        "delta": "the plan's delta",
        "order": "the Renyi order at which every group is charged; NaN where the accountant takes its best",
        "assumptions": "an array of texts: what the claim takes for granted, and what it leaves out",
        "git_sha": "commit of the code that made the finished run",
        "git_dirty": "whether that code had uncommitted changes",
        "versions": "a dict: package -> version",
        "device": "what it was trained on",
        "finished": "when, ISO 8601 in UTC",
    },
    # one row per line of history.jsonl; a half-written last line is left out
    "history": {
        "run_id": "the run",
        "kind": "'evaluation', or what a probe calls its lines ('sampling_variance', 'group_gradients', 'gaps', "
        "'running')",
        "step": "steps taken",
        "epoch": "the same in epochs",
        "split": "what was evaluated: 'valid', and since it is logged 'train' and 'test'; choices are made by 'valid' "
        "alone",
        "rows": "how many rows of it: of a large training or test part a fixed sample; NaN where it was not logged",
        "wga": "lowest group accuracy",
        "avg": "mean of the group accuracies",
        "variance": "of a probe of the sampling variance",
        "…": "whatever else the runs logged, under its own name: accuracy, loss, count, group_weights, and of a "
        "probe gradient_norm, gradient_variance, clipping_error, train_accuracy and test_accuracy of the whole parts, "
        "running_accuracy of the batches (one entry per group, as lists or arrays)",
    },
    # one row per run, split and group, of the last iterate; a plan-only run has one per group, without a split. The
    # frame `partition` has the same columns, of the groups that rows are drawn and charged by
    "groups": {
        "run_id": "the run",
        "split": "'test' or 'valid'",
        "group": "number of the group, from 0",
        "group_name": "its name",
        "accuracy": "its accuracy; NaN where it is empty",
        "loss": "its mean loss; NaN where it is empty",
        "count": "its samples in the split; 0 where it is empty",
        "train_count": "its samples in the training split",
        "calibrated": "whether the noise was calibrated for it; None if the summary does not say, and of groups that "
        "overlap, which nothing is calibrated for or charged by: the frame `partition` says what their members are",
        "epsilon": "what the plan charges its members: what is guaranteed; NaN of groups that overlap",
        "epsilon_spent": "what the ledger came to for them",
        "positives": "of a task of two classes, its samples of class 1; NaN of other tasks, and where "
        "a run is older than this column",
        "predicted_positives": "its samples that are predicted to be of class 1",
        "true_positives": "its samples of class 1 that are predicted to be",
    },
    # one row per run and owner, of methods that keep a budget for each
    "owners": {
        "run_id": "the run",
        "owner": "number of the owner, from 0",
        "owner_name": "its name; None if the summary has none",
        "budget": "the epsilon that was asked for; NaN where there is one for all",
        "epsilon": "what the plan charges the owner's records: what is guaranteed",
        "epsilon_spent": "what the ledger came to for them",
    },
    # one row per release of a finished run, equal ones counted: what of the private data became public
    "ledger": {
        "run_id": "the run",
        "line": "number of the row within its run, from 0, in order of the first release",
        "name": "what was released ('gradient', 'group losses')",
        "law": "how records were sampled for it ('uniform_without_replacement', 'whole_training_set', …)",
        "first_step": "step of the first of these releases",
        "count": "how many there were",
        "noise_std": "standard deviation of the noise on every coordinate",
        "noise_multiplier": "an array, one entry per cell (a group, or the part of it that one owner has): noise std / "
        "norm bound of one record, as charged to the members of the cell, for all answers from one draw together; NaN "
        "for a cell that the release never touches, or that is charged otherwise",
        "sampling_rate": "an array, one entry per cell: the share of its population that is sampled; NaN as above",
        "noise": "'gaussian' or 'laplace'",
        "answers": "an array of texts: what else was published from the same draw and is charged with it",
        "charged_as": "what the release is charged as in place of its own event, proven to cost no less; None: itself",
    },
}


COLUMNS = _COLUMNS | {"partition": _COLUMNS["groups"]}


def describe(frame: str) -> str:
    """The columns of 'runs', 'groups', 'partition', 'owners', 'history' or 'ledger', a line each."""
    if frame not in COLUMNS:
        near = get_close_matches(frame, COLUMNS, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown frame {frame!r}: did you mean {near!r}? (choose from {', '.join(COLUMNS)})")
    width = max(map(len, COLUMNS[frame]))
    return "\n".join(f"{name:{width}}  {meaning}" for name, meaning in COLUMNS[frame].items())
