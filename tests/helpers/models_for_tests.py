"""Builds registered architectures without a data set."""

from argparse import Namespace
from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from batches import EOS, perturb, split_projections
from fairseq.models import FairseqEncoderDecoderModel

import ode_transformer.models  # noqa: F401  (registers the architectures)
from ode_transformer.models.model_from_options import build_from_options, build_outline, model_flags


def build_model(arch: str, source: int = 30, target: int | None = None, **options: Any) -> FairseqEncoderDecoderModel:
    """The architecture with dictionaries of the given sizes, evaluation mode; embeddings are shared if they are one."""
    args = Namespace(arch=arch, share_all_embeddings=target is None, **options)
    return build_from_options(args, source, target).eval()


def outline(arch: str, source: int = 30, target: int | None = None, **options: Any) -> FairseqEncoderDecoderModel:
    """The same model without first weights: all that counting needs."""
    args = Namespace(arch=arch, share_all_embeddings=target is None, **options)
    return build_outline(args, (source,) if target is None else (source, target)).eval()


def model_key(args: Namespace) -> tuple[str, ...]:
    """Return what decides over a model but its dictionaries: the architecture, and values of the flags it declares."""
    return args.arch, *(str(getattr(args, action.dest, None)) for action in model_flags(args.arch))


SIZES = {"embed_dim": 16, "ffn_embed_dim": 24, "layers": 2, "attention_heads": 2}
SMALL = {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in SIZES.items()}
SMALL |= {"max_relative_positions": 3, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


def small_model(seed: int = 0, arch: str = "ode_transformer_euler", **options: Any) -> FairseqEncoderDecoderModel:
    """A model of 2-2 layers in float64 whose every parameter has been moved away from its start."""
    torch.manual_seed(seed)
    return perturb(build_model(arch, **(SMALL | options)).double())


def count_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def beam_rows(generator: torch.Generator, width: int = 2) -> Callable[[int], tuple[list[int], list[int]]]:
    """Draw as beam search does: a beam for each sentence, then rows of the same beam; the third draw ends one."""
    steps = count()

    def draw(rows: int) -> tuple[list[int], list[int]]:
        step = next(steps)
        if step == 0:
            order = torch.arange(rows).repeat_interleave(width)
        else:
            first = width if step == 2 and rows > width else 0
            beams = torch.arange(first, rows) // width * width
            order = beams + torch.randint(0, width, beams.shape, generator=generator)
        return order.tolist(), torch.randint(4, 30, order.shape, generator=generator).tolist()

    return draw


@torch.no_grad()
def check_search(
    model: Any, source: torch.Tensor, draw: Callable[[int], tuple[list[int], list[int]]], steps: int
) -> None:
    """Decode step by step; ``draw`` says which rows follow those of a step, as in beam search, and their new tokens.

    What the rows that are left at the end had at each step has to be that of a full pass: logits and attention.
    """
    encoder_out = model.encoder(source, None) if hasattr(model, "encoder") else None
    tokens, incremental_state = torch.full((len(source), 1), EOS), {}
    found: dict[str, list[torch.Tensor]] = {"logits": [], "attention": []}
    for _ in range(steps):
        logits, extra = model.decoder(tokens, encoder_out=encoder_out, incremental_state=incremental_state)
        assert logits.shape == (len(tokens), 1, logits.size(-1))
        found["logits"].append(logits)
        if encoder_out is not None and extra["attn"][0] is not None:
            found["attention"].append(extra["attn"][0])
        rows, new = (torch.tensor(numbers) for numbers in draw(len(tokens)))
        model.decoder.reorder_incremental_state_scripting(incremental_state, rows)
        encoder_out = encoder_out and model.encoder.reorder_encoder_out(encoder_out, rows)
        tokens, source = torch.cat([tokens[rows], new[:, None]], dim=1), source[rows]
        found = {name: [x[rows] for x in all_steps] for name, all_steps in found.items()}
    full, extra = model.decoder(tokens[:, :-1], encoder_out=encoder_out and model.encoder(source, None))
    torch.testing.assert_close(torch.cat(found["logits"], dim=1), full)
    if found["attention"]:
        torch.testing.assert_close(torch.cat(found["attention"], dim=1), extra["attn"][0])


RENAMED = {
    "self_attn.layer_norm": "self_attn_layer_norm",
    "self_attn.function": "self_attn",
    "encoder_attn.layer_norm": "encoder_attn_layer_norm",
    "encoder_attn.function": "encoder_attn",
    "ffn.layer_norm": "final_layer_norm",
    "ffn.function.": "",
}


def fairseqs_names(model) -> dict[str, torch.Tensor]:
    """The state of a model of ours as fairseq's own transformer names it."""
    weights = {}
    for name, tensor in split_projections(model.state_dict()).items():
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        if not name.endswith("_extra_state"):  # what the parameters are for, which fairseq does not keep
            weights[name] = tensor
    return weights
