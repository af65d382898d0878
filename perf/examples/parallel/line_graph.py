# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A graph of the lines of a text, and layers that learn on it."""

import collections
from typing import Tuple

import torch
from torch import nn

VERTICES, FEATURES, WIDTH, CLASSES = 256, 256, 64, 8
LEAST_LINES = 64


def line_graph(text: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Lines of a text as the vertices of a graph, with an edge between two that share a rare word.

    Returns:
        Features [vertices, FEATURES]: which of the most frequent words a line has.
        The matrix by which neighbours are averaged [vertices, vertices]: D^-1/2 (A + I) D^-1/2, with A the edges and
        D the numbers of neighbours (Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional
        Networks", 2017, equation 2).
        Classes [vertices]: which of CLASSES equal parts of the text a line is from.
    """
    lines = [set(line.split()) for line in bytes(text.tolist()).decode(errors="replace").lower().splitlines()]
    lines = [line for line in lines if len(line) > 2][:VERTICES]
    if len(lines) < LEAST_LINES:
        raise SystemExit(f"the text has {len(lines)} lines of 3 different words or more: give one with {LEAST_LINES}")
    uses = collections.Counter(word for line in lines for word in sorted(line))
    features = torch.tensor([[float(word in line) for word, _ in uses.most_common(FEATURES)] for line in lines])
    rare = [word for word, count in uses.items() if 2 <= count <= 6]
    has_rare = torch.tensor([[float(word in line) for word in rare] for line in lines])
    edges = ((has_rare @ has_rare.T > 0) | torch.eye(len(lines), dtype=torch.bool)).float()
    scale = edges.sum(1).rsqrt()
    return features, scale[:, None] * edges * scale, torch.arange(len(lines)) * CLASSES // len(lines)


class GraphLayers(nn.Module):
    """Layers first to last - 1 of `layers` graph convolutions with residuals; the first one has an embedding before
    it, and the last one a classifier behind it."""

    def __init__(self, first: int, last: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(FEATURES, WIDTH) if first == 0 else nn.Identity()
        self.convolutions = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(first, last))
        self.head = nn.Linear(WIDTH, CLASSES) if last == layers else nn.Identity()

    def forward(self, x: torch.Tensor, average: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for convolution in self.convolutions:
            x = x + torch.relu(average @ convolution(x))
        return self.head(x)
