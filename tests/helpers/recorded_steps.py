"""Small models of every kind, criteria and batches for tests of recorded training steps."""

from argparse import Namespace
from typing import Any

import numpy as np
import torch
from batches import PAD, batch, teacher_forced
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY, FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer

import ode_transformer.models  # noqa: F401  (registers criteria and optimizers)

TASK: Any = Namespace(
    target_dictionary=Namespace(pad=lambda: PAD), datasets={"train": Namespace(sizes=np.array([[8, 12]]))}
)
LANGUAGE_MODEL = {"arch": "ode_transformer_lm_rk2", "encoder_layers": 2}
BERT = {"arch": "macaron_bert_tiny", "max_relative_positions": 0}
SYSTEMS: dict[str, dict[str, Any]] = {
    "euler": {},
    "rk2": {"arch": "ode_transformer_rk2"},
    "multistep": {"encoder_ode_scheme": "multistep", "encoder_layer_history": "none"},
    "macaron": {"arch": "macaron"},
    "lstm": {"arch": "dlstm", "max_relative_positions": 0},
    "recomputed": {"checkpoint_activations": True},
    "lm": LANGUAGE_MODEL,
    "bert": BERT,
    "reformer_fast": {"arch": "reformer_fast"},
    "reformer_base": {"arch": "reformer_base", "encoder_layers": 0},
    "divided_reformer": {"arch": "reformer_fast", "max_joint_cells": 150},
}
ADAM = {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-4, "weight_decay": 0.1, "fp16_adam_stats": False}
DROPOUT = {"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.1, "word_dropout_prob": 0.1}


def build_criterion(arch: str, **options: Any) -> Any:
    name = "fused_masked_lm" if "bert" in arch else "fused_label_smoothed_cross_entropy"
    cfg = Namespace(sentence_avg=False, label_smoothing=0.1, tpu=False, **options)
    return CRITERION_REGISTRY[name].build_criterion(cfg, TASK).train()


def build_optimizer(
    name: str, wrapper: Any, parameters: list[torch.Tensor], scale: float = 4, window: int = 1000, flat: bool = False
) -> FairseqOptimizer:
    """An optimizer, perhaps in a wrapper for half precision, as fairseq's trainer makes it."""
    build, adam = OPTIMIZER_REGISTRY[name], Namespace(**ADAM)
    if wrapper is None:
        return build(adam, parameters)
    common = {"bf16": parameters[0].dtype == torch.bfloat16, "fp16_init_scale": scale, "fp16_scale_window": window}
    common |= {"fp16_scale_tolerance": 0.0, "threshold_loss_scale": None, "min_loss_scale": 1e-4}
    cfg: Any = Namespace(common=Namespace(**common), optimizer=None)
    if wrapper is MemoryEfficientFP16Optimizer:
        return wrapper(cfg, parameters, build(adam, parameters))
    if flat:  # as fairseq makes it on a GPU alone
        copy = torch.nn.Parameter(torch.cat([p.detach().flatten() for p in parameters]).float())
        copy.grad = torch.zeros_like(copy)
        return wrapper(cfg, parameters, build(adam, [copy]), {None: copy})
    copies = FP16Optimizer.build_fp32_params(cfg, parameters, flatten=False)
    return wrapper(cfg, parameters, build(adam, copies), copies)


def sample_for(arch: str, seed: int) -> dict[str, Any]:
    """A batch whose padded shape is the same for every seed, though its own is not."""
    lengths = [7 + seed % 2, 6, 3]
    source, target = batch(lengths, seed), batch([5, 10 + seed % 2, 2], seed + 1)
    net_input = {"src_tokens": source, "src_lengths": torch.tensor(lengths)}
    if "lm" in arch or "bert" in arch:
        target = source.roll(-1, 1) if "lm" in arch else source.masked_fill(torch.arange(source.size(1)) % 3 > 0, PAD)
    else:
        net_input["prev_output_tokens"] = teacher_forced(target)
    return {"net_input": net_input, "target": target, "ntokens": int(target.ne(PAD).sum()), "nsentences": 3}


def gradients_of(model: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
