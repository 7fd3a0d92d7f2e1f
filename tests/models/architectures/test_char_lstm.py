"""The LSTM of characters: torch's own numbers, padding that changes nothing, and tokens that are none of its."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rawls.models.architectures.char_lstm import CharLstm
from rawls.models.engines.base import Engine
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.opacus import OpacusEngine
from tests.models.conftest import fixed_weights

CPU = torch.device("cpu")
NAMES = [[256, 65, 98, 257], [256, 66, 257], [256, 65, 65, 200, 90, 65, 257]]
LABELS = torch.tensor([2, 0, 1])


def small() -> nn.Module:
    torch.manual_seed(0)
    return CharLstm().build((9,), 3)


def padded(length: int) -> Tensor:
    return torch.tensor([name + [258] * (length - len(name)) for name in NAMES])


class Torchs(nn.Module):
    """Layers of torch, each name by itself without its padding."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(259, 64)
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.cat([self.head(self.lstm(self.characters(row[row < 258]))[0][-1:]) for row in tokens])


# Of what our two layers call weight and bias.
TORCHS_NAMES = {
    "lstm.from_input.weight": "lstm.weight_ih_l0",
    "lstm.from_input.bias": "lstm.bias_ih_l0",
    "lstm.from_state.weight": "lstm.weight_hh_l0",
    "lstm.from_state.bias": "lstm.bias_hh_l0",
}


def test_is_torchs_network_and_so_are_its_gradients() -> None:
    ours, theirs = small().double(), Torchs().double()
    theirs.load_state_dict({TORCHS_NAMES.get(name, name): value for name, value in ours.state_dict().items()})
    for model in (ours, theirs):
        nn.functional.cross_entropy(model(padded(9)), LABELS, reduction="sum").backward()
    torch.testing.assert_close(ours(padded(9)), theirs(padded(9)), rtol=1e-12, atol=1e-14)
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(
            parameter.grad, expected[TORCHS_NAMES.get(name, name)].grad, rtol=1e-11, atol=1e-14, msg=name
        )


def test_begins_as_torchs_layers_do() -> None:
    """Uniform up to 1 / sqrt(units) in the LSTM, normal in the embedding."""
    parameters = small().state_dict()
    for name in TORCHS_NAMES:
        assert 0.9 * 128**-0.5 < float(parameters[name].abs().max()) <= 128**-0.5
    assert float(parameters["characters.weight"].std()) == pytest.approx(1, abs=0.05)


ENGINES: dict[str, Callable[[Callable[[], nn.Module]], Engine]] = {
    "fused": lambda build: FusedEngine(build, device=CPU, chunk=2),
    "hooks": lambda build: OpacusEngine(build, device=CPU, mode="hooks", physical_batch=2),
    "ghost": lambda build: OpacusEngine(build, device=CPU, mode="ghost", physical_batch=2),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_longer_padding_changes_no_loss_norm_or_gradient(engine: str) -> None:
    computes = ENGINES[engine](small)
    params, weights = computes.initial(0).double().unsqueeze(0), torch.tensor([[0.5, 1.0, 2.0]]).double()

    def found(length: int) -> tuple[Tensor, Tensor, Tensor]:
        tokens, labels = padded(length).unsqueeze(0), LABELS.unsqueeze(0)
        result = computes.weighted_sum(params, tokens, labels, fixed_weights(weights))
        return result.losses, result.norms, result.total

    for short, long in zip(found(7), found(31), strict=True):
        torch.testing.assert_close(long, short, rtol=1e-12, atol=1e-14)


def test_the_end_of_a_name_is_read_and_not_its_padding() -> None:
    model = small()
    tokens = padded(9)
    tokens[1, 2] = 7  # what was the last character of a name
    with torch.no_grad():
        changed = (model(tokens) - model(padded(9))).abs().amax(1) > 1e-4
    assert changed.tolist() == [False, True, False]


def test_other_tokens_and_shapes_are_refused() -> None:
    tokens = padded(9)
    tokens[2, 3] = 2003
    with pytest.raises(ValueError, match=r"^char_lstm takes characters below 259, not token 2003: choose model="):
        small()(tokens)
    with pytest.raises(ValueError, match=r"^char_lstm takes rows of characters, not \[3, 8, 8\]"):
        CharLstm().build((3, 8, 8), 2)
