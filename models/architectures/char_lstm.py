"""The LSTM of INO-SGD that tells a surname's country from its characters (App. D.1.2): 118,226 parameters.

Embedding of 259 characters (bytes, a start, an end, padding) to 64, one LSTM layer of 128 units with torch's two
biases, Linear on its output at the last character. The paper's code reads the last position, padding or not; here
padding, which lies behind a name, changes nothing.

Opacus' own LSTM calls its layer once for each character, which only the Opacus engine takes. Here the states are found
first, without a tape; then the layer is called on all of them at once, and one pass back through time gives the
gradient of what comes out of it at each character. So every engine takes it, and a step of 256 names of 20 characters
takes a sixth of Opacus' time (0.18 s and 1.04 s on one core).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rawls.models.architectures.parts.layers import tanh
from rawls.models.architectures.parts.transformer import TakesTokens

CHARACTERS = 259
_EMBEDDED, _UNITS = 64, 128


@dataclass(frozen=True, kw_only=True)
class CharLstm(TakesTokens):
    """Embedding, LSTM, Linear, for rows of characters with padding behind them."""

    padding: ClassVar[int] = 258

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        if len(input_shape) != 1:
            raise ValueError(f"char_lstm takes rows of characters, not {list(input_shape)}; choose another model")
        return _Classifier(num_classes)


class _Classifier(nn.Module):
    """Logits of the state at the last character."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, _EMBEDDED)
        self.lstm = _Lstm(_EMBEDDED, _UNITS)
        self.head = nn.Linear(_UNITS, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        if len(strange := tokens[tokens >= CHARACTERS]):
            raise ValueError(
                f"char_lstm takes characters below {CHARACTERS}, not token {int(strange[0])}: choose model=distilbert"
            )
        last = (tokens != CharLstm.padding).sum(1).sub_(1).clamp_min_(0)
        states = self.lstm(self.characters(tokens))
        return self.head(states[torch.arange(len(tokens), device=tokens.device), last])


class _Lstm(nn.Module):
    """Values [sample, position, width] to states [sample, position, unit], as torch's LSTM of one layer."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.from_input, self.from_state = nn.Linear(width, 4 * units), nn.Linear(units, 4 * units)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(units**-0.5), units**-0.5)

    def forward(self, values: Tensor) -> Tensor:
        of_input = self.from_input(values)
        states, cells, gates = _in_order(of_input.detach(), self.from_state.weight, self.from_state.bias)
        before = torch.cat([torch.zeros_like(states[:1]), states[:-1]]).transpose(0, 1)
        entered = of_input + self.from_state(before)
        return _ThroughTime.apply(entered, states, cells, gates, self.from_state.weight.detach())


@torch.no_grad()
def _in_order(of_input: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """States, cells, and the four gates behind their activations, each [position, sample, ...]."""
    passed = []
    state = cell = of_input.new_zeros(len(of_input), weight.shape[1])
    for entered in of_input.transpose(0, 1).contiguous():
        gates = linear(state, weight, bias).add_(entered)
        into, keep, value, out = gates.chunk(4, 1)
        for gate in (into, keep, out):
            gate.sigmoid_()
        value.copy_(tanh(value))
        cell = keep * cell + into * value
        state = out * tanh(cell)
        passed.append((state, cell, gates))
    states, cells, all_gates = map(torch.stack, zip(*passed, strict=True))
    return states, cells, all_gates


class _ThroughTime(torch.autograd.Function):
    """What entered the gates [sample, position, ...] -> the states that were found; back, the gradient of all of it.

    That is all there is to differentiate: the states of before entered through the layer, whose gradient follows.
    """

    @staticmethod
    def forward(ctx: Any, entered: Tensor, states: Tensor, cells: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(cells, gates, weight)
        return states.transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cells, gates, weight = ctx.saved_tensors
        of_states = gradients[0].transpose(0, 1)
        found = torch.empty_like(gates)
        of_cell, of_state = torch.zeros_like(cells[0]), torch.zeros_like(cells[0])
        for position in reversed(range(len(cells))):
            into, keep, value, out = gates[position].chunk(4, 1)
            squashed = tanh(cells[position])
            of_state = of_state + of_states[position]
            of_cell = of_cell + of_state * out * (1 - squashed * squashed)
            before = cells[position - 1] if position else torch.zeros_like(of_cell)
            of_gates = (
                of_cell * value * into * (1 - into),
                of_cell * before * keep * (1 - keep),
                of_cell * into * (1 - value * value),
                of_state * squashed * out * (1 - out),
            )
            torch.cat(of_gates, 1, out=found[position])
            of_cell = of_cell * keep
            of_state = found[position] @ weight
        return found.transpose(0, 1), None, None, None, None
