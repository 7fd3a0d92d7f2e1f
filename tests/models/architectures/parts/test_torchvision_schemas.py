"""Torchvision imports beside any torch, and nothing is declared where its own extension declares it."""

from pathlib import Path

import pytest
import torch

from rawls.models.architectures.parts.torchvision_schemas import declare_missing


class Recorder:
    """In place of torch.library.Library: operators, once declared, stay so for the life of a process."""

    def __init__(self, namespace: str, kind: str) -> None:
        self.namespace, self.kind = namespace, kind
        self.schemas: list[str] = []

    def define(self, schema: str) -> None:
        self.schemas.append(schema)


def test_torchvision_imports_after_the_declaration() -> None:
    assert declare_missing() is declare_missing()
    import torchvision

    assert torchvision.models.resnet50.__name__ == "resnet50"
    schema = str(torch.ops.torchvision.nms.default._schema)
    assert schema == "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@pytest.mark.parametrize("fails", [True, False])
def test_declares_only_when_the_extension_cannot_load(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    loaded: list[str] = []

    def load(path: str) -> None:
        loaded.append(Path(path).name.partition(".")[0])
        if fails:
            raise OSError("undefined symbol")

    monkeypatch.setattr(torch.ops, "load_library", load)
    monkeypatch.setattr(torch.library, "Library", Recorder)
    library = declare_missing.__wrapped__()
    assert loaded == ["_C"]
    if not fails:
        assert library is None
        return
    assert isinstance(library, Recorder)
    assert (library.namespace, library.kind) == ("torchvision", "FRAGMENT")
    assert [schema.partition("(")[0] for schema in library.schemas] == ["nms", "qnms"]
