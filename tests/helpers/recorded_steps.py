"""Small models of every kind, criteria and batches for tests of recorded training steps."""

from argparse import Namespace
from typing import Any

import numpy as np
import torch
from fairseq.criterions import CRITERION_REGISTRY
from models_for_tests import PAD, batch, teacher_forced

TASK: Any = Namespace(
    target_dictionary=Namespace(pad=lambda: PAD),
    datasets={"train": Namespace(sizes=np.array([[8, 12]]))},
)
LANGUAGE_MODEL = {"arch": "ode_transformer_lm_rk2", "encoder_layers": 2}
BERT = {"arch": "macaron_bert_tiny", "max_relative_positions": 0}
SYSTEMS: dict[str, dict[str, Any]] = {
    "euler": {},
    "rk2": {"arch": "ode_transformer_rk2"},
    "rk4": {"encoder_ode_scheme": "rk4", "decoder_ode_scheme": "rk4"},
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
DROPOUT = {"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.1, "word_dropout_prob": 0.1}


def build_criterion(arch: str, **options: Any) -> Any:
    name = "fused_masked_lm" if "bert" in arch else "fused_label_smoothed_cross_entropy"
    cfg = Namespace(sentence_avg=False, label_smoothing=0.1, tpu=False, **options)
    return CRITERION_REGISTRY[name].build_criterion(cfg, TASK).train()


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
