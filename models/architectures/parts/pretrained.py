"""Models that may begin with weights of a file: what they ask of whoever builds them, and where the file comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


class Pretrained(ABC):
    """A model specification whose weights may come from a file; the others need shapes alone."""

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], num_classes: int, root: Path | None = None) -> nn.Module:
        """The module; its weights are looked for under `root` (a run's data.root) before anywhere else."""


def hub_state(
    source: str,
    url: str,
    file: Path,
    root: Path | None,
    *,
    check_hash: bool = False,
    scratch: str = "model.pretrained=false",
) -> dict[str, Tensor]:
    """The tensors of a weights file: one under data.root, else in torch hub's cache, else from its server.

    Args:
        source: what the weights are called, for the error.
        file: where it lies under `root`.
        check_hash: whether its name carries a checksum.
        scratch: what leaves the weights out, for the error.

    Raises:
        ValueError: it cannot be had.
    """
    folder = None if root is None or not (root / file).is_file() else str((root / file).parent)
    try:
        if file.suffix == ".safetensors":
            return _of_safetensors(url, Path(folder or Path(torch.hub.get_dir()) / "checkpoints") / file.name)
        state = torch.hub.load_state_dict_from_url(
            url,
            model_dir=folder,
            file_name=file.name,
            map_location="cpu",
            progress=False,
            check_hash=check_hash,
            weights_only=True,
        )
    except Exception as error:  # many types, for no network, a wrong checksum or a broken file
        reason = str(error).partition(". ")[0]
        raise ValueError(
            f"the pretrained weights of {source} cannot be had ({reason}): put {url} as {file.as_posix()} "
            f"under data.root, or set {scratch}"
        ) from error
    entries = state.items() if isinstance(state, Mapping) else ()  # a file may hold anything
    return {str(key): value for key, value in entries if isinstance(value, Tensor)}


def _of_safetensors(url: str, path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(path), progress=False)
    return load_file(path)
