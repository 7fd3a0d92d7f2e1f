"""The two calculators: one JSON object, inverses of each other, one line for bad input."""

import json
import subprocess
import sys

import pytest

from rawls.accounting.calibration import epsilon_command, noise_command
from tests.tree import ROOT

CELEBA = "--sampling without_replacement --population 162770 --batch 256 --steps 31800 --delta 3.0718e-6"
ISSUE = f"{CELEBA} --neighbouring replace_one --accountant rdp"
POISSON = "--sampling poisson --population 5000 --batch 50 --steps 300"


def ask(capsys: pytest.CaptureFixture[str], module: object, options: str) -> dict[str, object]:
    assert module.main(options.split()) == 0  # type: ignore[attr-defined]
    out, err = capsys.readouterr()
    assert err == ""
    answer: dict[str, object] = json.loads(out)
    return answer


@pytest.mark.parametrize(
    ("options", "noise_multiplier"),
    [
        ("", 5.078125),
        ("--releases 50 --release-ratio 25", 5.5859375),
        ("--releases 50 --release-ratio 25 --group-size 1387", 570.0),
    ],
)
def test_printed_multipliers(capsys: pytest.CaptureFixture[str], options: str, noise_multiplier: float) -> None:
    answer = ask(capsys, noise_command, f"{ISSUE} --epsilon 1 --search opacus {options}")
    assert answer["noise_multiplier"] == noise_multiplier
    assert answer["order"] == 20.0
    assert answer["accountant"] == "rdp"
    assert answer["neighbouring"] == "replace_one"
    assert 0.99 <= float(str(answer["epsilon"])) <= 1.0


@pytest.mark.parametrize(
    "options",
    [
        ISSUE,
        f"{ISSUE} --releases 50 --release-ratio 25 --group-size 1387",
        f"{POISSON} --neighbouring add_remove",
        pytest.param(
            f"{POISSON} --neighbouring replace_one --accountant pld --releases 3 --steps 20", marks=pytest.mark.nightly
        ),
        f"{POISSON} --neighbouring add_remove --accountant prv",
        "--sampling none --steps 1 --delta 1e-5 --neighbouring replace_one",
    ],
)
def test_epsilon_is_the_inverse_of_calibrate(capsys: pytest.CaptureFixture[str], options: str) -> None:
    found = ask(capsys, noise_command, f"{options} --epsilon 1.25")
    assert found.pop("target_epsilon") == 1.25
    assert found.pop("search") == "tight"
    assert float(str(found["epsilon"])) == pytest.approx(1.25, abs=1e-4)
    assert float(str(found["epsilon"])) <= 1.25
    assert ask(capsys, epsilon_command, f"{options} --noise-multiplier {found['noise_multiplier']}") == found


def test_the_guarantee_of_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    """aZB-weak of the ASC paper: calibrated on the group of 4,879, what it gives the group of 474."""
    run = "--population 49208 --batch 256 --steps 11580 --releases 60"
    answer = ask(capsys, epsilon_command, f"{run} --group-size 474 --noise-multiplier 92.5")
    assert answer["group_size"] == 474
    assert answer["group_epsilon"] == answer["epsilon"] == pytest.approx(14.327, abs=5e-4)
    assert answer["sampling"] == {"law": "without_replacement", "population": 474, "batch": 256}
    assert answer["release_noise_multiplier"] == 25 * 92.5


def test_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    without = ask(capsys, epsilon_command, "--population 5000 --batch 50 --steps 300 --noise-multiplier 9")
    assert without["neighbouring"] == "replace_one"
    assert without["delta"] == 1 / 10000
    assert without["release_noise_multiplier"] is None
    assert "group_size" not in without
    assert ask(capsys, epsilon_command, f"{POISSON} --noise-multiplier 9")["neighbouring"] == "add_remove"


GOOD = "--population 5000 --batch 50 --steps 300 --epsilon 1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (f"{GOOD} --epsilon 0", "target epsilon must be positive"),
        (f"{GOOD} --epsilon x", "--epsilon: invalid float value: 'x'"),
        (f"{GOOD} --delta 0", "delta must lie strictly between 0 and 1"),
        (f"{GOOD} --delta 2e-4", "--delta must lie below 1 / population = 0.0002"),
        (f"{GOOD} --batch 5001", "a batch of 5001 is larger than the 5000 examples"),
        (f"{GOOD} --group-size 49", "a batch of 50 is larger than the 49 examples"),
        (f"{GOOD} --group-size 5001", "a group of 5001 is larger than the population of 5000"),
        (f"{GOOD} --batch 0", "--batch must be positive"),
        (f"{GOOD} --steps -3", "--steps must be positive, but it is -3"),
        (f"{GOOD} --steps 1{'0' * 22}", "--steps must be at most 1e+15, but it is 1000"),
        (f"{GOOD} --releases 1{'0' * 22}", "--releases must be at most 1e+15"),
        (f"{GOOD} --releases -1", "--releases must not be negative"),
        (f"{GOOD} --release-ratio 0", "--release-ratio must be positive"),
        (f"{GOOD} --accountant gdp", "invalid choice: 'gdp'"),
        (f"{GOOD} --neighbouring zero_out", "invalid choice: 'zero_out'"),
        (f"{GOOD} --sampling shuffle", "invalid choice: 'shuffle'"),
        (f"{GOOD} --search brent", "invalid choice: 'brent'"),
        (f"{GOOD} --sampling poisson --neighbouring replace_one", "needs accountant pld"),
        (f"{GOOD} --accountant pld", "sampling without replacement needs accountant rdp"),
        (f"{GOOD} --momentum 0.9", "unrecognized arguments: --momentum"),
        ("--batch 50 --steps 300 --epsilon 1", "needs --population and --batch"),
        ("--population 5000 --batch 50 --epsilon 1", "the following arguments are required: --steps"),
        ("--population 5000 --batch 50 --steps 300", "the following arguments are required: --epsilon"),
        ("--sampling none --steps 1 --epsilon 1", "without --population, --delta is needed"),
        ("--sampling none --steps 100000000000000 --epsilon 0.01 --delta 1e-5", "no noise can meet epsilon = 0.01"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], options: str, message: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        noise_command.main(options.split())
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("rawls budget: error: ")
    assert message in err


@pytest.mark.parametrize("noise_multiplier", ["0", "-1", "1e-9", "nan", "x"])
def test_noise_that_is_none_is_one_line_too(capsys: pytest.CaptureFixture[str], noise_multiplier: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        epsilon_command.main(f"--population 5000 --batch 50 --steps 300 --noise-multiplier {noise_multiplier}".split())
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    assert (out, err.count("\n")) == ("", 1)


def test_from_a_shell() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        budget = [sys.executable, "-m", "rawls.runners.cli.commands", "budget"]
        return subprocess.run([*budget, *words], cwd=ROOT, capture_output=True, text=True)

    good = run(*ISSUE.split(), "--epsilon", "1")
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["noise_multiplier"] == pytest.approx(5.04371, abs=1e-5)
    bad = run(*ISSUE.split())
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "rawls budget: error: the following arguments are required: --epsilon\n"
    assert "--noise-multiplier" in run("--noise-multiplier", "2", "--help").stdout
