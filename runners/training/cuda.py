"""What a process sets up before it computes on a GPU, for the same numbers every time."""

import os

import torch


def make_cuda_reproducible() -> None:
    """Have this process compute on a GPU in full single precision and in the same order every time.

    To be called before the first tensor is sent there. Runs on a CPU need none of it, and must not get it.
    """
    # TF32 rounds to 1e-3: norms would be too low by more than the margin of 1e-5 that their bounds allow for.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    # index_add_ and cuDNN's weight gradients add up in whatever order threads come; cuBLAS needs a workspace of its own
    # not to. What has no deterministic kernel warns.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    # It would also fill whatever torch.empty makes, on the CPU too; ours is written before it is read.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
