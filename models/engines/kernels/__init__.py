"""The kernels under the fused engine: matrix products and convolutions of small batches."""
