"""What architectures share: layers without parameters, pretrained weights, torchvision."""
