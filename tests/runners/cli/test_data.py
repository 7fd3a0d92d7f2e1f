import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from rawls.runners.cli.commands import main
from tests.datasets.own.made import overrides


def test_data_fetches_and_says_where_it_lies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rawls.datasets.unbalanced_mnist import UnbalancedMnist

    monkeypatch.setattr(UnbalancedMnist, "fetch", lambda self, root: [root / "images"])
    assert main(["data", "unbalanced_mnist", "data.root=there"]) == 0
    assert capsys.readouterr().out == "there/images: verified\n"
    assert main(["data", "digits"]) == 0
    assert capsys.readouterr().out == "digits needs no file\n"


def test_data_says_what_ones_own_files_hold(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["data", "table", *overrides("table", tmp_path)]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == f"{tmp_path}/persons.csv: 240 rows of 6 columns by commas, in UTF-8"
    assert last == "- that cells of job and height are missing is public (an input says of which rows)"


def test_data_fetches_the_weights_of_a_frozen_encoder_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rawls.datasets.blog import Blog
    from rawls.datasets.core.sources import Source
    from rawls.runners.training import features

    def obtain(wanted: Sequence[Source], root: Path) -> list[Path]:
        return [root / source.home for source in wanted]

    monkeypatch.setattr(Blog, "fetch", lambda self, root: obtain(self.sources, root))
    monkeypatch.setattr(features, "obtain", obtain)
    files = ["minilm/model.safetensors", "blog/blog_technology_arts.tar.xz", "word_pieces/vocab.txt"]
    for asked, found in ((["model=distilbert"], files[1:]), (["model=minilm"], files), ([], files)):
        assert main(["data", "blog", *asked, "data.root=there"]) == 0
        assert capsys.readouterr().out == "".join(f"there/{name}: verified\n" for name in found)


def test_weights_are_fetched_for_data_that_must_be_had_by_hand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from rawls.runners.training import features

    monkeypatch.setattr(features, "obtain", lambda sources, root: [root / sources[0].home])
    assert main(["data", "utkface", f"data.root={tmp_path}"]) == 2
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}/resnet50_frozen/model.json: verified\n"
    assert re.search(r"put it, the folder UTKFace of https://\S+ .*, at \S+/utkface/UTKFace$", told.err)
