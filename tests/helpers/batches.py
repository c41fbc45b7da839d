"""Batches of random sentences, and parameters that are moved or kept as earlier versions kept them; no fairseq."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch

PAD, EOS = 1, 2
ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)


@torch.no_grad()
def perturb(module: ModuleT) -> ModuleT:
    """Move every parameter a little away from its start."""
    for parameter in module.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    return module


def batch(lengths: list[int], seed: int = 0, vocabulary: int = 30) -> torch.Tensor:
    """Random sentences, right-padded, each closed by EOS; [B, longest]."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(tokens, lengths, strict=True):
        row[: length - 1] = torch.randint(4, vocabulary, (length - 1,), generator=generator)
        row[length - 1] = EOS
    return tokens


def teacher_forced(target: torch.Tensor) -> torch.Tensor:
    """The decoder's input for a target: shifted right, EOS first."""
    shifted = target.roll(1, dims=1)
    shifted[:, 0] = EOS
    shifted[shifted.eq(EOS) & (torch.arange(target.size(1)) > 0)] = PAD
    return shifted


def pair_sample(lengths: list[int], targets: list[int] | None = None, seed: int = 0) -> dict[str, Any]:
    """Sentence pairs as fairseq batches them; a target that is not given a length has that of its source."""
    target = batch(targets or lengths, seed + 1)
    net_input = {"src_tokens": batch(lengths, seed), "src_lengths": torch.tensor(lengths)}
    net_input["prev_output_tokens"] = teacher_forced(target)
    return {"net_input": net_input, "target": target, "ntokens": int(target.ne(PAD).sum())}


def split_projections(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Parameters as versions until November 2026 kept them: Q, K and V of an attention by themselves."""
    older = {}
    for name, tensor in parameters.items():
        start, _, end = name.rpartition("function.")
        if end in ("in_proj.weight", "kv_proj.weight"):
            letters = "qkv" if end == "in_proj.weight" else "kv"
            bias = parameters[name.removesuffix("weight") + "bias"]
            parts = (x.chunk(len(letters)) for x in (tensor, bias))
            for letter, *both in zip(letters, *parts, strict=True):
                for kind, part in zip(("weight", "bias"), both, strict=True):
                    older[f"{start}function.{letter}_proj.{kind}"] = part.clone()
        elif end not in ("in_proj.bias", "kv_proj.bias"):
            older[name] = tensor
    return older
