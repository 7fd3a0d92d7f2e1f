"""The kernels under the fused engine: matrix products, convolutions of small batches, norms over positions."""
