"""The networks that the SparDL paper trains on CIFAR, with as many parameters as it says. Not run by itself."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

# Widths of the convolutions; 0 halves the image.
_VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
_VGG19 = (64, 64, 0, 128, 128, 0, *4 * (256,), 0, *4 * (512,), 0, *4 * (512,), 0)


def vgg16(classes: int = 10) -> nn.Module:
    """14,728,266 parameters for ten classes."""
    return _vgg(_VGG16, classes)


def vgg19(classes: int = 10) -> nn.Module:
    """20,040,522 parameters for ten classes, 20,086,692 for a hundred."""
    return _vgg(_VGG19, classes)


def _vgg(widths: tuple[int, ...], classes: int) -> nn.Module:
    """VGG for images of 32 x 32: batch norm after each convolution, and one linear layer instead of three."""
    layers: list[nn.Module] = []
    before = 3
    for width in widths:
        if width == 0:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        before = width
    return _started(nn.Sequential(*layers, nn.Flatten(), nn.Linear(before, classes)))


def resnet20(classes: int = 10) -> nn.Module:
    """ResNet-20 for CIFAR: three stages of three blocks. 269,722 parameters for ten classes."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    before = 16
    for width in (16, 32, 64):
        for _ in range(3):
            layers.append(_Block(before, width))
            before = width
    return _started(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)))


class _Block(nn.Module):
    """Two convolutions and a shortcut, which has no parameters: where width grows, new channels are zero."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.stride = 1 if before == width else 2
        self.new_channels = width - before
        self.convolve = nn.Sequential(
            nn.Conv2d(before, width, 3, self.stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            half = self.new_channels // 2
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, half, self.new_channels - half))
        return functional.relu(self.convolve(x) + shortcut)


def _started(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    # The order of memory in which convolutions are fastest on a CPU; spardl takes parameters in any.
    return model.to(memory_format=torch.channels_last)


MODELS: dict[str, Callable[[int], nn.Module]] = {"vgg16": vgg16, "vgg19": vgg19, "resnet20": resnet20}
