"""Checkpoints as the authors' released code lays them out, with random parameters."""

from argparse import Namespace

import torch

D, F, HEADS, CLIP, LAYERS = 8, 12, 2, 2, 2


def released(**changes: object) -> tuple[Namespace, dict[str, torch.Tensor]]:
    """Return options and parameters of a checkpoint with two layers a stack.

    :param changes: of the options
    """
    sizes = {"embed_dim": D, "ffn_embed_dim": F, "layers": LAYERS, "attention_heads": HEADS, "normalize_before": True}
    options = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in sizes.items()}
    options |= {"arch": "ode_transformer_t2t_wmt_en_de", "rk_type": "standard", "enc_calculate_num": 4}
    options |= {"share_all_embeddings": False, "share_decoder_input_output_embed": False}
    options |= {"max_relative_length": CLIP, "relu_dropout": 0.2, "dropout": 0.3} | changes
    attention = {"in_proj_weight": (3 * D, D), "in_proj_bias": (3 * D,)}
    attention |= {"out_proj.weight": (D, D), "out_proj.bias": (D,)}
    own = {"fc1.weight": (F, D), "fc1.bias": (F,), "fc2.weight": (D, F), "fc2.bias": (D,)}
    own |= {f"self_attn.{name}": shape for name, shape in attention.items()}
    own |= {"self_attn.relative_position_keys": (2 * CLIP + 1, D // HEADS)}
    shapes: dict[str, tuple[int, ...]] = {"encoder.version": (1,), "decoder.version": (1,)}
    norms = {"encoder": ("layer_norms.0", "layer_norms.1")}
    norms["decoder"] = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
    for stack, vocabulary in (("encoder", 20), ("decoder", 22)):
        shapes[f"{stack}.embed_tokens.weight"] = (vocabulary, D)
        more = {f"encoder_attn.{name}": shape for name, shape in attention.items()} if stack == "decoder" else {}
        more |= {f"{norm}.{kind}": (D,) for norm in norms[stack] for kind in ("weight", "bias")}
        for layer in range(LAYERS):
            shapes |= {f"{stack}.layers.{layer}.{name}": shape for name, shape in (own | more).items()}
        final = [f"{stack}.layer_norm"] if options[f"{stack}_normalize_before"] else []
        history = options.get(f"{stack}_history_type")
        if history is not None:
            final += [f"{stack}.history.layer_norms.{layer}" for layer in range(LAYERS)]
        shapes |= {f"{norm}.{kind}": (D,) for norm in final for kind in ("weight", "bias")}
        if history == "learnable_dense":
            shapes[f"{stack}.history.weight"] = (LAYERS + 1, LAYERS + 1)
    if options["enc_calculate_num"] == 2 and options["rk_type"] == "learnable":
        shapes |= {"encoder.gate_linear.weight": (1, 2 * D), "encoder.gate_linear.bias": (1,)}
    if options["enc_calculate_num"] == 2 and options["rk_type"] == "initialization":
        shapes["encoder.alpha"] = (2,)
    if not options["share_decoder_input_output_embed"]:
        shapes["decoder.embed_out"] = (22, D)
    generator = torch.Generator().manual_seed(0)
    return Namespace(**options), {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
