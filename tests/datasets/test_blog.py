"""The Blog corpus: what its files may look like, its readings, and the real archive where it is at hand."""

import hashlib
import io
import math
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rawls.accounting.accountants.poisson_epsilon import epsilons
from rawls.datasets import blog
from rawls.datasets.blog import ARCHIVE, COUNTS, TEST_RATE, Blog, read_posts, text_of
from rawls.datasets.core.base import InMemory
from rawls.datasets.core.sources import locate, verified
from rawls.runners.config.compose import compose
from rawls.runners.config.errors import ConfigError

FILES = {
    "1.male.35.Technology.Leo.xml": b"""<Blog>\r\n
<date>28,April,2004</date>\r\n<post>\r\n  Fish &amp; chips < 3 & more\x97 caf\xe9  \r\n</post>\r
<date>,,</date>\n<post> \n\t </post>\n<date>27,April,2004</date>
<post>urlLink <b>bold</i> <Blog> &nbsp;&lt;br&gt;</post>\n</Blog>""",
    "2.female.36.Arts.Virgo.xml": "<Blog><date>1,mai,2004</date><post>Ça va — “bien” \x00</post></Blog>".encode(),
    "3.female.17.Technology.indUnk.xml": b"<Blog>\n<post>one</post>\n<post>two\n\n  lines</post>\n<post>cut of",
    "4.male.48.Arts.Aries.xml": b"",
}


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:xz") as made:
        folder = tarfile.TarInfo("blogs")
        folder.type = tarfile.DIRTYPE
        made.addfile(folder)
        for name, content in files.items():
            entry = tarfile.TarInfo(f"blogs/{name}")
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return path


def test_a_post_is_what_stands_between_its_tags(tmp_path: Path) -> None:
    """No date, no empty post, and none that is cut off; signs that XML forbids are text like others."""
    posts = list(read_posts(archive(tmp_path / "some.tar.xz", FILES)))
    assert [text_of(post.content) for post in posts] == [
        "Fish & chips < 3 & more— café",
        "urlLink <b>bold</i> <Blog> \xa0<br>",
        "Ça va — “bien” \x00",
        "one",
        "two\n\n  lines",
    ]
    assert [Blog.group_names[post.group] for post in posts] == [
        *["male to 35"] * 2,
        "female above 35",
        *["female to 35"] * 2,
    ]
    assert [post.topic for post in posts] == [0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"caf\xc3\xa9 \xe2\x80\x9cso\xe2\x80\x9d", "café “so”"),
        (b"caf\xe9 \x93so\x94 \x80 5", "café “so” € 5"),
        (b"caf\xe9 caf\xc3\xa9", "café cafÃ©"),  # one stray byte, and all of the post is Windows'
        (b"\xff\x81", "ÿ\ufffd"),  # 81 means nothing there
        (b"&quot;a&quot; &#233; &nosuch; &amp;amp;", '"a" é &nosuch; &amp;'),
    ],
)
def test_bytes_of_any_encoding_are_some_text(content: bytes, text: str) -> None:
    assert text_of(content) == text


def test_the_rows_its_readings_imply() -> None:
    """95 steps of 16 rows are what epsilon 5 at noise .8 needs; with all posts it is about 1."""
    for spec, epsilon in ((Blog(), 5.005), (Blog(posts=None), 1.060)):
        steps = math.ceil(sum(spec.paper_group_sizes) / 16)
        found = epsilons(1 / steps, 0.8, steps=20 * steps, delta=1e-5)
        assert float(found) == pytest.approx(epsilon, abs=5e-4)
    assert Blog().paper_group_sizes == (925, 434, 79, 82)
    assert Blog(posts=None).paper_group_sizes == (36_119, 16_928, 3_064, 3_212)


def test_the_test_part_is_the_same_whatever_is_trained_on() -> None:
    few, all_ = (Blog(provenance="simulated", posts=posts).load(Path("nowhere")) for posts in (200, None))
    for data, trained_on in ((few, 200), (all_, 59_323)):
        split = data.splits(0)
        assert [len(part) for part in split] == [trained_on, 0, 14_831]
        assert len(data.labels) == trained_on + 14_831
        assert np.bincount(data.groups.numpy()[split.test]).tolist() == [9_030, 4_232, 766, 803]
    sizes = np.bincount(all_.groups.numpy() * 2 + all_.labels.numpy()).reshape(4, 2)
    assert sizes.tolist() == [list(counts) for counts in COUNTS]


def test_more_posts_than_there_are_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^dataset\.posts=60000 must be at least 1 and at most 59323 or null$"):
        compose(["dataset=blog", "dataset.posts=60000"])


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with an archive of 5 posts of each group and a vocabulary, which pass for the real ones."""
    names = [f"1.{who}.Arts.Leo.xml" for who in ("male.20", "female.20", "male.40", "female.40")]
    files = dict.fromkeys(names, b"<post>a post</post>" * 4 + b"<post>a a</post>")
    vocabulary = "".join(f"{piece}\n" for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "po", "##st"))
    (tmp_path / "blog").mkdir()
    archive(tmp_path / "blog" / ARCHIVE.filename, files)
    (tmp_path / "word_pieces").mkdir()
    (tmp_path / "word_pieces" / "vocab.txt").write_text(vocabulary)
    made = [
        replace(source, sha256=hashlib.sha256((tmp_path / folder / source.filename).read_bytes()).hexdigest())
        for source, folder in zip(Blog.sources, ("blog", "word_pieces"), strict=True)
    ]
    monkeypatch.setattr(Blog, "sources", tuple(made))
    monkeypatch.setattr(blog, "TRAINED_ON", np.array([4, 4, 4, 4]))
    monkeypatch.setattr(blog, "TESTED_ON", np.array([1, 1, 1, 1]))
    return tmp_path


def test_a_small_archive(small: Path) -> None:
    """Numbers of pieces by the vocabulary; the rows of a part are those of its posts."""
    data = Blog(posts=8).load(small)
    assert data.provenance == "real" and set(data.sources) == {"blog_technology_arts.tar.xz", "vocab.txt"}
    assert isinstance(data.inputs, InMemory) and data.inputs.tensor.shape == (12, 128)
    kinds = {tuple(row[:6]) for row in data.inputs.tensor.tolist()}
    assert kinds <= {(2, 4, 5, 6, 3, 0), (2, 4, 4, 3, 0, 0)} and (2, 4, 5, 6, 3, 0) in kinds
    assert not data.inputs.tensor[:, 6:].any()
    assert data.labels.tolist() == [1] * 12
    split = data.splits(3)
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(12))
    assert [np.bincount(data.groups.numpy()[part]).tolist() for part in (split.train, split.test)] == [[2] * 4, [1] * 4]


@pytest.mark.parametrize("damaged", [f"blog/{ARCHIVE.filename}", "word_pieces/vocab.txt"])
def test_a_damaged_file_is_refused(small: Path, damaged: str) -> None:
    path = small / damaged
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{path.name} is altered or truncated"):
        Blog(posts=8).load(small)


def test_the_posts_of_the_real_archive(shared_data: Path) -> None:
    """As many of each topic in each group as the readings say, in the shares that give the printed totals."""
    if locate(ARCHIVE, shared_data) is None:
        pytest.skip(f"no Blog archive under {shared_data}")
    found = np.zeros((4, 2), dtype=int)
    texts = []
    for post in read_posts(verified(ARCHIVE, shared_data, "blog")):
        found[post.group, post.topic] += 1
        texts.append(text_of(post.content))
    assert found.tolist() == [list(counts) for counts in COUNTS]
    assert sum("<date>" in text or "<post>" in text for text in texts) == 0
    assert sum("\ufffd" in text for text in texts) == 93  # as they were written
    shares = np.round(TEST_RATE * found.sum(1)) / np.round(TEST_RATE * found.sum())
    printed = {  # group accuracies of Table 3, and their total
        "NON-DP": ([73.88, 63.52, 73.59, 66.46], 70.51),
        "DP-SGD": ([73.06, 56.34, 73.09, 59.58], 67.57),
        "DP-IS-SGD": ([62.87, 64.68, 71.47, 71.05], 64.26),
        "FDPG": ([71.76, 59.14, 72.53, 60.35], 67.59),
        "AUTO-S": ([73.63, 55.11, 73.06, 57.62], 67.46),
    }
    for method, (accuracies, total) in printed.items():
        assert shares @ accuracies == pytest.approx(total, abs=0.02), method


def test_the_real_rows(shared_data: Path) -> None:
    if Blog().found(shared_data) != "real":
        pytest.skip(f"no Blog archive or no vocabulary under {shared_data}")
    data = Blog().load(shared_data)
    assert isinstance(data.inputs, InMemory)
    tokens, split = data.inputs.tensor, data.splits(0)
    assert np.bincount(data.groups.numpy()[split.train]).tolist() == list(Blog().paper_group_sizes)
    assert tokens.shape == (1_520 + 14_831, 128)
    assert (tokens[:, 0] == 101).all()
    filled = (tokens > 0).sum(1)
    assert (tokens[torch.arange(len(tokens)), filled - 1] == 102).all()
    assert 0.4 < float((filled == 128).float().mean()) < 0.6
    assert float((tokens == 100).sum() / (tokens > 0).sum()) < 0.001  # unknown
