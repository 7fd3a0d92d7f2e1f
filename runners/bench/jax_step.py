"""A private step by jax-privacy's clipped_grad, compiled, on the same model, parameters and batch.

For where it is installed: it is no dependency of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor, nn

from rawls.models.architectures.parts.layers import MaxPool2, Tanh
from rawls.models.engines.propagation import in_order


def jax_step(module: nn.Module, inputs: Tensor, labels: Tensor) -> Callable[[], object]:
    """Clipping, noise and SGD as torch's other methods here do them."""
    import jax
    import jax.numpy as jnp
    from jax_privacy.clipping import clipped_grad

    layers = [_translated(layer) for layer in in_order(module)]
    images, numbers = jnp.asarray(inputs.numpy()), jnp.asarray(labels.numpy())

    def loss(params: list[Any], x: Any, label: Any) -> Any:
        for (_, apply), of_layer in zip(layers, params, strict=True):
            x = apply(x, *of_layer)
        return -jnp.take_along_axis(jax.nn.log_softmax(x), label[:, None], 1).mean()

    summed = clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2))

    @jax.jit
    def update(params: list[Any], key: Any) -> tuple[list[Any], Any]:
        key, own = jax.random.split(key)
        leaves, tree = jax.tree.flatten(summed(params, images, numbers))
        keys = jax.random.split(own, len(leaves))
        noisy = [leaf + jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
        noise = jax.tree.unflatten(tree, noisy)
        return jax.tree.map(lambda value, change: value - 0.1 / len(images) * change, params, noise), key

    state = [[values for values, _ in layers], jax.random.key(0)]

    def step() -> None:
        state[:] = update(*state)
        jax.block_until_ready(state[0])

    return step


def _translated(layer: nn.Module) -> tuple[list[Any], Callable[..., Any]]:
    """A layer's parameters, and what it does to a batch."""
    import jax
    import jax.numpy as jnp

    values = [jnp.asarray(parameter.detach().numpy()) for parameter in layer.parameters()]
    if isinstance(layer, nn.Linear):
        return values, lambda x, weight, *bias: sum(bias, x @ weight.T)
    if isinstance(layer, nn.Conv2d):
        rows, columns = cast(tuple[int, int], layer.padding)
        padding, steps = [(rows, rows), (columns, columns)], layer.stride

        def convolve(x: Any, weight: Any, *bias: Any) -> Any:
            out = jax.lax.conv_general_dilated(x, weight, steps, padding)
            return sum((one[:, None, None] for one in bias), out)

        return values, convolve
    if isinstance(layer, MaxPool2):
        window = (1, 1, 2, 2)
        return values, lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
    if isinstance(layer, Tanh | nn.Tanh):
        return values, jnp.tanh
    if isinstance(layer, nn.ReLU):
        return values, jax.nn.relu
    if isinstance(layer, nn.Flatten):
        return values, lambda x: x.reshape(len(x), -1)
    raise ValueError(f"bench has no translation of {type(layer).__name__} to jax")
