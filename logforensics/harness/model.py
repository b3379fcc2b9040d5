"""A small decoder: token embedding, two transformer blocks, a head. Training side.

Classes are made inside the function because torch may only be imported by the training processes; the harness
itself has to run where there is none.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

VOCABULARY = 256
SEQUENCE = 32


@dataclass
class Oddity:
    """What is wrong with the model on this rank; the training loop flips these at the chosen step."""

    clip_features: bool = False
    """The head gets one feature too few."""
    skip_block: bool = False
    """The second block is left out of forward."""
    wild_token: bool = False
    """One token id is outside the vocabulary."""


def build_model(width: int = 64, oddity: Oddity | None = None) -> Any:
    """A torch.nn.Module from tokens to the mean loss; ``block_type`` is the class of its blocks."""
    torch: Any = importlib.import_module("torch")
    nn: Any = torch.nn
    functional: Any = importlib.import_module("torch.nn.functional")
    odd = oddity or Oddity()

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
            self.norm2 = nn.LayerNorm(width)
            self.up = nn.Linear(width, 2 * width)
            self.down = nn.Linear(2 * width, width)

        def forward(self, x: Any, mask: Any) -> Any:
            y = self.norm1(x)
            x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, width)
            self.positions = nn.Parameter(torch.zeros(SEQUENCE, width))
            self.blocks = nn.ModuleList(Block() for _ in range(2))
            self.head = nn.Linear(width, VOCABULARY)
            mask = torch.full((SEQUENCE, SEQUENCE), float("-inf")).triu(1)
            self.register_buffer("mask", mask, persistent=False)

        def forward(self, tokens: Any) -> Any:
            inputs, targets = tokens[:, :-1], tokens[:, 1:]
            if odd.wild_token:
                inputs = inputs.clone()
                inputs[0, 0] = VOCABULARY + 7
            x = self.tokens(inputs) + self.positions
            blocks = self.blocks[:1] if odd.skip_block else self.blocks
            for block in blocks:
                x = block(x, self.mask.to(x.dtype))
            if odd.clip_features:
                x = x[..., :-1]
            logits = self.head(x)
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    model = Decoder()
    model.block_type = Block
    return model
