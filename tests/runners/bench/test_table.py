"""Tables of measurements as Markdown and CSV."""

from rawls.runners.bench.table import Table, judged

MACHINE = {
    "cpu": "a processor",
    "cores": 2,
    "system": "Linux",
    "versions": {"python": "3.11", "torch": "2.13", "opacus": "1.6"},
    "kernels": ["conv2d_kernel"],
}


def test_a_table_shows_few_digits_and_keeps_all() -> None:
    table = Table(
        name="speed",
        title="Speed",
        about="How it was measured.",
        columns={"method": "method", "ms": "ms/step"},
        digits={"ms": 1},
        rows=[{"method": "ours", "ms": 1.26}, {"method": "theirs", "ms": None}],
        verdicts=[judged("mlp", {"fast": True, "small": False})],
        raw=None,
    )
    assert table.markdown(MACHINE).splitlines() == [
        "# Speed",
        "",
        "a processor, 2 cores, Linux; python 3.11, torch 2.13, opacus 1.6; our compiled kernels: conv2d_kernel.",
        "How it was measured.",
        "",
        "| method | ms/step |",
        "| --- | ---: |",
        "| ours | 1.3 |",
        "| theirs |  |",
        "",
        "- mlp: fast: met; small: MISSED",
    ]
    assert table.csv() == "method,ms\nours,1.26\ntheirs,\n"
