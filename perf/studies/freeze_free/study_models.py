# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Language models that others have published, scaled down, and the text that they learn.

gpt    GPT-2 of Hugging Face's transformers with the settings that nanoGPT has for characters and a CPU: four heads, no
       dropout, no biases, beta2 0.99, weight decay 0.1 of matrices. nanoGPT's initial values are for a width of 768:
       their deviation grows with the root of how much narrower this model is
lstm   the LSTM of PyTorch's example word_language_model, an embedding, two layers of torch.nn.LSTM and a linear
       decoder, without dropout, and with PyTorch's initial values: those of the example are for SGD
"""

import math

import torch
from torch import nn

from freeze_free.flat_optimizers import Parameters

WIDTH = 64
LAYERS = 2
CONTEXT = 32
BETAS = (0.9, 0.99)
WEIGHT_DECAY = 0.1
WARMUP = 60
HELD_OUT_SHARE = 0.05
HELD_OUT_SEQUENCES = 1024


class LSTM(nn.Module):
    def __init__(self, symbols: int):
        super().__init__()
        self.encoder = nn.Embedding(symbols, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, batch_first=True)
        self.decoder = nn.Linear(WIDTH, symbols)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.lstm(self.encoder(tokens))[0])


class GPT(nn.Module):
    def __init__(self, symbols: int):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel  # pylint: disable=import-outside-toplevel
        self.model = GPT2LMHeadModel(GPT2Config(
            vocab_size=symbols, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=4, resid_pdrop=0,
            embd_pdrop=0, attn_pdrop=0, initializer_range=0.02 * math.sqrt(768 / WIDTH), use_cache=False,
            bos_token_id=None, eos_token_id=None, attn_implementation="eager"))
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):  # zeros
                parameter.requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(tokens).logits


MODELS = {"gpt": GPT, "lstm": LSTM}


class Text:
    """A text whose symbols are the bytes that occur in it. Its end is held out."""

    def __init__(self, contents: bytes):
        self.bytes = len(contents)
        occurring = sorted(set(contents))
        self.symbols = len(occurring)
        symbol_of = torch.zeros(256, dtype=torch.long)
        symbol_of[occurring] = torch.arange(self.symbols)
        every = symbol_of[torch.frombuffer(bytearray(contents), dtype=torch.uint8).long()]
        split = len(every) - max(2 * CONTEXT, int(HELD_OUT_SHARE * len(every)))
        self._training, self._held_out = every[:split], every[split:]

    def batches(self, ranks: int, batch: int, draw: torch.Generator) -> tuple:
        """Tokens and those that follow them, [ranks, batch, CONTEXT] each."""
        begins = torch.randint(len(self._training) - CONTEXT, (ranks, batch, 1), generator=draw)
        return _windows(self._training, begins)

    def held_out(self) -> tuple:
        """The same of places that are equally far apart, as one batch."""
        count = min(HELD_OUT_SEQUENCES, len(self._held_out) // CONTEXT)
        begins = torch.linspace(0, len(self._held_out) - CONTEXT - 1, count).long().unsqueeze(1)
        return _windows(self._held_out, begins)


def _windows(text: torch.Tensor, begins: torch.Tensor) -> tuple:
    places = begins + torch.arange(CONTEXT)
    return text[places], text[places + 1]



def trained(model: nn.Module) -> list:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def flattened(model: nn.Module) -> Parameters:
    """Moves the parameters of a model into one vector. Matrices decay, as in nanoGPT."""
    parameters = trained(model)
    values = torch.cat([parameter.detach().flatten() for parameter in parameters])
    starts, end = [], 0
    decay = torch.zeros_like(values)
    for parameter in parameters:
        begin, end = end, end + parameter.numel()
        starts.append(begin)
        parameter.data = values[begin:end].view_as(parameter)
        decay[begin:end] = WEIGHT_DECAY if parameter.dim() > 1 else 0
    return Parameters(values, starts, decay)


def rate_at(step: int, steps: int, peak: float) -> float:
    """Rises for WARMUP steps, or a quarter of the steps, and falls to a tenth along half a cosine; step 0 is the first.
    """
    warmup = max(1, min(WARMUP, steps // 4))
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.55 + 0.45 * math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))
