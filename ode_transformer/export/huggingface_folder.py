"""Folder of Hugging Face's ``transformers``: weights, configuration, tokenizer and one module of code.

The module imports this package, which has the model's equations; a program that loads the folder needs it installed.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig
from transformers.utils.logging import disable_progress_bar

from ode_transformer.checkpoints.plain_model import exported_options
from ode_transformer.decoding.trained_model import TrainedModel
from ode_transformer.export.huggingface_model import (
    SPECIAL_TOKENS,
    ODETransformerConfig,
    ODETransformerForSeq2SeqLM,
)
from ode_transformer.export.huggingface_tokenizer import DICTIONARIES_FILE
from ode_transformer.nn import ARCHITECTURES, PADDING
from ode_transformer.support.arguments import BEAM, LENGTH_PENALTY, MAX_WORDS

MODULE = "modeling_ode_transformer"
CODE = '''"""Model and tokenizer of this folder, by the package ode_transformer: pip install ode-transformer."""

from ode_transformer.export.huggingface_model import ODETransformerConfig, ODETransformerForSeq2SeqLM
from ode_transformer.export.huggingface_tokenizer import ODETransformerTokenizer

__all__ = ["ODETransformerConfig", "ODETransformerForSeq2SeqLM", "ODETransformerTokenizer"]
'''


def refusal(model: TrainedModel) -> str | None:
    """Return why the folder cannot hold a model; None if it can."""
    architecture = model.options.get("arch") or model.options.get("_name")
    if architecture in ARCHITECTURES:
        return None
    return (
        f"--arch {architecture} is no architecture of this package, so its code cannot be imported from "
        "it; fairseq's own models have converters in transformers"
    )


def write(model: TrainedModel, folder: Path, quantization: None) -> None:
    """Write the folder, but for the file of the subword model."""
    source, target = model.source_dictionary, model.target_dictionary
    config = ODETransformerConfig(exported_options(model.options), len(source), len(target))
    exported = ODETransformerForSeq2SeqLM(config)
    weights = {name: tensor for name, tensor in model.model.state_dict().items() if not name.endswith("_extra_state")}
    exported.model.load_state_dict(weights)
    tied = exported._tied_weights_keys
    stored = {name: tensor.contiguous() for name, tensor in exported.state_dict().items() if name not in tied}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures = [ODETransformerForSeq2SeqLM.__name__]
    classes = {"AutoConfig": "ODETransformerConfig", "AutoModelForSeq2SeqLM": "ODETransformerForSeq2SeqLM"}
    config.auto_map = {name: f"{MODULE}.{class_name}" for name, class_name in classes.items()}
    config.save_pretrained(folder)
    source_limit, target_limit = model.max_positions
    GenerationConfig(
        **SPECIAL_TOKENS,
        **{"num_beams": BEAM, "early_stopping": True, "length_penalty": LENGTH_PENALTY},
        **{"min_length": 2, "max_length": min(MAX_WORDS, target_limit - 1) + 2, "suppress_tokens": [PADDING]},
    ).save_pretrained(folder)
    write_json(folder / DICTIONARIES_FILE, {"source": source.symbols, "target": target.symbols})
    settings = {
        "tokenizer_class": "ODETransformerTokenizer",
        "auto_map": {"AutoTokenizer": [f"{MODULE}.ODETransformerTokenizer", None]},
        "model_max_length": int(source_limit),
    }
    write_json(folder / "tokenizer_config.json", settings)
    (folder / f"{MODULE}.py").write_text(CODE, encoding="utf-8")
    shutil.copymode(folder / f"{MODULE}.py", folder / "model.safetensors")  # which only its owner could read


def scores(model: TrainedModel, folder: Path, sources: list[Tensor], targets: list[Tensor]) -> list[list[float]]:
    """Return log p of the words of each target, as the folder computes them."""
    disable_progress_bar()  # of transformers
    exported = ODETransformerForSeq2SeqLM.from_pretrained(folder).eval()
    source, target = (pad_sequence(side, batch_first=True, padding_value=PADDING) for side in (sources, targets))
    log_probs = exported(source, labels=target).logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
    return [row[: len(tokens)].tolist() for row, tokens in zip(log_probs, targets, strict=True)]


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
