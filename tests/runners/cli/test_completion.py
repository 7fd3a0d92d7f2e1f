import os
import subprocess
import sys
from pathlib import Path

import pytest

from rawls.runners.cli.commands import COMMANDS, main
from rawls.runners.cli.completion import LINE
from rawls.runners.config.compose import choices


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a shell is told at a Tab behind this line."""
    monkeypatch.setenv(LINE, line)
    main(["-sc", "query=bash"])
    out, error = capsys.readouterr()
    assert error == ""
    return sorted(out.split())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rawls ", sorted(COMMANDS)),
        ("rawls repr", ["reproduce"]),
        ("rawls xyz", []),
        ("rawls reproduce asc/tab", ["asc/table1", "asc/table1_readings"]),
        ("rawls report fdpg/table1", ["fdpg/table1", "fdpg/table1_text"]),
        ("rawls compare asc/tun", ["asc/tuning"]),
        ("rawls data unb", ["unbalanced_mnist"]),
        ("rawls wandb ", ["results.root=", "sync", "workspace"]),
        ("rawls status r", ["results.root="]),
        ("rawls status results.root=x ", []),
        ("rawls train dataset=dig", ["dataset=digits"]),
        ("rawls train -m dataset=digits algorithm.group_", ["algorithm.group_lr="]),
        ("rawls reproduce asc/table1 scale=sm", ["scale=smoke"]),
        ("rawls reproduce asc/table1 dataset=nothing scale=sm", ["scale=smoke"]),
    ],
)
def test_what_may_follow_is_offered(
    line: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(line, monkeypatch, capsys) == words


def test_every_target_is_offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(completed("rawls render ", monkeypatch, capsys)) >= set(choices("experiment"))


@pytest.mark.parametrize("flags", [["-sc"], ["--shell-completion"], ["train", "-sc"]])
def test_a_shell_completes_rawls_after_the_script(flags: list[str]) -> None:
    script = """
    eval "$(rawls "$@" install=bash)"
    complete -p rawls >&2
    COMP_LINE='rawls reproduce asc/fig2 dataset=dut' COMP_CWORD=3
    COMP_POINT=${#COMP_LINE}
    hydra_bash_completion
    echo "${COMPREPLY[@]}"
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script, "bash", *flags], env={**os.environ, "PATH": path}, text=True, capture_output=True
    )
    assert done.stdout == "dataset=dutch\n"
    assert "hydra_bash_completion rawls\n" in done.stderr and "error" not in done.stderr
