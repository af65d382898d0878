# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A quadratic with its minimum at 1, which optimizers of tests train. It takes PyTorch."""

import torch

SHAPES = [(6, 50), (50,), (3, 4, 5, 7)]


def parameters(dtype=torch.float32, shapes=None):
    """Equal on all ranks; the last of SHAPES does not lie in the order of its dimensions."""
    generator = torch.Generator().manual_seed(7)
    made = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes or SHAPES]
    if shapes is None:
        made[2] = made[2].contiguous(memory_format=torch.channels_last)
    return [torch.nn.Parameter(values) for values in made]


def gradient(parameter, rank, step):
    """The gradient of the quadratic, with noise of the rank and the step."""
    generator = torch.Generator().manual_seed(1000 * step + 10 * rank + parameter.dim())
    noise = torch.randn(parameter.shape, generator=generator)
    return (parameter.detach().float() - 1 + 0.3 * noise).to(parameter.dtype)


def make_step(optimizer, given, rank, step):
    for parameter in given:
        parameter.grad = gradient(parameter, rank, step)
    optimizer.step()
