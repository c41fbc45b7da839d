"""What the command line can say: architectures, refused combinations, and no option that is silently ignored."""

import re
from argparse import ArgumentParser, Namespace
from dataclasses import fields
from types import SimpleNamespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer.transformer_config import (
    DecoderConfig,
    EncDecBaseConfig,
    QuantNoiseConfig,
    TransformerConfig,
)
from models_for_tests import SMALL, build_model, count_parameters, outline, small_model

from ode_transformer.models.architectures import SCHEME_OPTIONS, TRANSLATION_SIZES
from ode_transformer.models.depth_stack import depth_choice
from ode_transformer.models.ode_transformer import ODETransformerModel
from ode_transformer.models.options import DEPTH_DEFAULTS, UNSUPPORTED_OPTIONS
from ode_transformer.nn import DepthChoice

WIDTHS = {  # d, f, heads, layers of encoder and decoder, dropout
    "": (512, 2048, 8, 6, 6, 0.1),
    "_tiny": (128, 256, 4, 4, 4, 0.1),
    "_iwslt_de_en": (512, 1024, 4, 6, 6, 0.1),
    "_wmt_en_de": (512, 2048, 8, 6, 6, 0.1),
    "_wmt_en_de_deep": (512, 2048, 8, 24, 6, 0.1),
    "_wmt_en_de_big": (1024, 4096, 16, 6, 6, 0.3),
    "_wmt_en_de_big_deep": (1024, 4096, 16, 12, 6, 0.3),
    "_small_18": (256, 1024, 4, 18, 6, 0.1),
    "_small_28": (256, 1024, 4, 28, 6, 0.1),
}
SCHEMES = {  # scheme, coefficients, whether layers share them, layer history of the encoder
    "ones": ("rk2", "ones", False, "none"),
    "euler": ("euler", "tableau", False, "dlcl"),
    "rk2": ("rk2", "gate", False, "dlcl"),
    "rk4": ("rk4", "tableau", False, "dlcl"),
    "pcformer": ("pcformer4", "ema", True, "none"),
    "iiet": ("iiet", "tableau", False, "none"),
}
SIZES = ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")


def settings(arch: str, **given) -> Namespace:
    args = Namespace(**given)
    for _ in range(2):  # fairseq calls architecture functions more than once
        ARCH_CONFIG_REGISTRY[arch](args)
    return args


@pytest.mark.parametrize("suffix", WIDTHS)
@pytest.mark.parametrize("method", SCHEMES)
def test_architectures(method: str, suffix: str) -> None:
    assert set(SCHEME_OPTIONS) == set(SCHEMES)
    assert set(TRANSLATION_SIZES) == set(WIDTHS)
    args = settings(f"ode_transformer_{method}{suffix}")
    options = (args.encoder_ode_scheme, args.ode_coefficients, args.ode_share_coefficients, args.encoder_layer_history)
    assert options == SCHEMES[method]
    assert args.decoder_ode_scheme == "euler"
    d, f, heads, encoder_layers, decoder_layers, dropout = WIDTHS[suffix]
    for stack, layers in (("encoder", encoder_layers), ("decoder", decoder_layers)):
        assert [getattr(args, f"{stack}_{name}") for name in SIZES] == [d, f, heads, layers]
        assert getattr(args, f"{stack}_normalize_before")
    assert (args.dropout, args.attention_dropout, args.activation_dropout) == (dropout, 0.1, 0.1)
    assert args.decoder_layer_history == ("none" if method == "ones" else "dlcl")
    assert (args.max_relative_positions, args.word_dropout_prob) == (8, 0.0)


def test_the_command_line_comes_first() -> None:
    args = settings("ode_transformer_rk2_tiny", encoder_ode_scheme="rk4", encoder_layers=9, max_relative_positions=0)
    assert (args.encoder_ode_scheme, args.encoder_layers, args.max_relative_positions) == ("rk4", 9, 0)


ON = {"encoder_layers_to_keep": "0", "decoder_layers_to_keep": "0", "quant_noise_pq": 0.1, "quant_noise_scalar": 0.1,
      "base_layers": 1, "encoder_xformers_att_config": "{}", "decoder_xformers_att_config": "{}"}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED_OPTIONS)
def test_what_is_not_carried_out_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} is not supported"):
        small_model(**{name: ON.get(name, True)})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"encoder_normalize_before": False}, "--encoder-ode-scheme euler: post-norm"),
        ({"decoder_normalize_before": False}, "--decoder-ode-scheme euler: post-norm"),
        ({"encoder_layerdrop": 0.2}, "--encoder-ode-scheme euler: LayerDrop"),
        ({"decoder_layerdrop": 0.2}, "--decoder-ode-scheme euler: LayerDrop"),
        ({"ode_coefficients": "gate"}, "--encoder-ode-scheme euler: coefficients 'gate' weigh at least two stages"),
        ({"ode_stage_parameters": "separate"}, "--encoder-ode-scheme euler: separate stage parameters need"),
        ({"ode_share_coefficients": True}, "--encoder-ode-scheme euler: .* nothing to share"),
        (
            {"arch": "ode_transformer_pcformer_tiny", "ode_coefficients": "tableau"},
            "nothing to share: pass --no-ode-share-coefficients",
        ),
        ({"post_norm": True, "encoder_normalize_before": True}, "--post-norm and --encoder-normalize-before"),
        ({"post_norm": True, "decoder_normalize_before": True}, "--post-norm and --decoder-normalize-before"),
        ({"dropout": 1.0}, r"--dropout 1.0: a probability lies in \[0, 1\)"),
        (
            {"encoder_ode_scheme": "midpoint", "ode_coefficients": "gate"},
            "--encoder-ode-scheme midpoint: coefficients 'gate' start from weights between 0 and 1",
        ),
        (
            {"encoder_ode_scheme": "leapfrog"},
            "--encoder-ode-scheme leapfrog: the scheme reads earlier layers .*pass --encoder-layer-history none",
        ),
        (
            {"decoder_ode_scheme": "multistep", "encoder_layer_history": "none"},
            "--decoder-ode-scheme multistep: .* --decoder-layer-history none for a decoder",
        ),
        ({"encoder_ode_scheme": "dlstm", "decoder_ode_scheme": "dlstm", "post_norm": True}, "--post-norm"),
        ({"encoder_ode_scheme": "dlstm", "dlstm_merge": "concat"}, "--dlstm-merge concat joins attentions of decoder"),
        (
            {"value_residual": "learned", "encoder_layers": 1, "decoder_layers": 1},
            "--value-residual learned: a stack of",
        ),
        ({"ode_middle_layers": 3, "encoder_ode_scheme": "rk2"}, "--ode-middle-layers 3: the encoder has 2 layers"),
        ({"arch": "reformer", "value_residual": "mean"}, "--value-residual adds values along one text"),
        ({"dlstm_hidden": "linear"}, "--encoder-ode-scheme euler: the parts of a depth-wise LSTM"),
        ({"encoder_ode_scheme": "no-such-scheme"}, "unknown scheme 'no-such-scheme'"),
        ({"encoder_attention_heads": 3}, "--encoder-attention-heads: 3 attention heads do not divide the width 16"),
        ({"decoder_attention_heads": 0}, "--decoder-attention-heads: 0 attention heads do not divide"),
        ({"encoder_layers": 0}, "--encoder-layers 0: a stack has at least one layer"),
        ({"decoder_layers": 10**9}, "--decoder-layers 1000000000: allowed are whole numbers from 0 to 10,000"),
        ({"encoder_embed_dim": 0}, "--encoder-embed-dim 0: allowed are whole numbers from 1 to 65,536"),
        ({"encoder_embed_dim": -4}, "--encoder-embed-dim -4: allowed are whole numbers from 1 to 65,536"),
        ({"decoder_output_dim": 0}, "--decoder-output-dim 0: allowed are whole numbers from 1 to"),
        ({"encoder_ffn_embed_dim": 0}, "--encoder-ffn-embed-dim 0: allowed are whole numbers from 1 to"),
        ({"decoder_ffn_embed_dim": -1}, "--decoder-ffn-embed-dim -1: allowed are whole numbers from 1 to"),
        ({"max_source_positions": 2}, "--max-source-positions 2: allowed are whole numbers from 3 to"),
        ({"max_target_positions": -1}, "--max-target-positions -1: allowed are whole numbers from 3 to"),
        ({"max_relative_positions": 10**10}, "--max-relative-positions 10000000000: allowed are whole numbers from 0"),
        ({"ode_step_size": 0.0}, "--ode-step-size 0.0: allowed is a positive number"),
        ({"ode_step_size": float("nan")}, "--ode-step-size nan: allowed is a positive number"),
        ({"ode_step_size": "2"}, "--ode-step-size 2: allowed is a positive number"),
        ({"ode_steps": 10**9}, "--ode-steps 1000000000: allowed are whole numbers from 1 to 1,000"),
        (
            {"decoder_input_dim": 8},
            "--decoder-input-dim 8: beside an encoder it has to be that of --decoder-embed-dim, 16",
        ),
        (
            {"encoder_embed_dim": 12},
            "--share-all-embeddings: --encoder-embed-dim 12 and --decoder-embed-dim 16 differ",
        ),
        (
            {"decoder_output_dim": 8},
            "--share-all-embeddings: --decoder-embed-dim 16 and --decoder-output-dim 8 differ",
        ),
        ({"adaptive_softmax_cutoff": "8,100000"}, "--adaptive-softmax-cutoff 100000: the dictionary has .* entries"),
        ({"adaptive_softmax_cutoff": "8", "adaptive_softmax_factor": 0.0}, "--adaptive-softmax-factor 0.0: allowed is"),
        ({"adaptive_softmax_dropout": 2.0}, r"--adaptive-softmax-dropout 2.0: a probability lies in \[0, 1\)"),
        *(
            ({"adaptive_softmax_cutoff": cutoff}, "--adaptive-softmax-cutoff .*ascending")
            for cutoff in ("20,10", [0, 5], [-5], "", "5,", "print()", [20, 20])
        ),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        small_model(**options)
    assert "\n" not in str(raised.value)


def test_one_stack_with_stages_is_enough_for_coefficients() -> None:
    model = small_model(decoder_ode_scheme="rk2", ode_coefficients="gate")
    names = [name for name, _ in model.named_parameters() if ".scheme.scheme.coefficients." in name]
    assert {name.split(".")[0] for name in names} == {"decoder"}
    for scheme in ("repeat", "polynet"):  # which have no weights to choose
        gated = small_model(encoder_ode_scheme="rk2", decoder_ode_scheme=scheme, ode_coefficients="gate")
        assert not [name for name, _ in gated.decoder.named_parameters() if "coefficients" in name]


@pytest.mark.parametrize(
    ("scheme", "encoder", "decoder"),  # what is trained beyond Euler's: L blocks are 6 layers, 12 or 18 sub-layers
    [
        ("leapfrog", 0, 0),
        ("multistep", 6, 6),
        ("dlcl-increments", 6 * 6, 6 * 6),  # of which 6 · 7 / 2 are used
        ("polynet", 0, 0),
        ("multistep-released", (12 - 1) * 512, (18 - 1) * 512),
        ("polynet-released", 0, 0),
    ],
)
def test_parameters_of_recurrences(scheme: str, encoder: int, decoder: int) -> None:
    plain = {"encoder_layer_history": "none", "decoder_layer_history": "none"}

    def count(**schemes: str) -> dict[str, int]:
        model = outline("ode_transformer_euler", **plain, **schemes)
        return {stack: count_parameters(getattr(model, stack)) for stack in ("encoder", "decoder")}

    euler, made = count(), count(encoder_ode_scheme=scheme, decoder_ode_scheme=scheme)
    assert {stack: made[stack] - euler[stack] for stack in euler} == {"encoder": encoder, "decoder": decoder}


def test_an_encoder_that_remembers_leaves_the_decoder_its_history() -> None:
    model = small_model(encoder_ode_scheme="leapfrog", encoder_layer_history="none")
    assert (model.encoder.choice.history, model.decoder.choice.history) == ("none", "dlcl")


# Fields of fairseq's configuration whose effect is fairseq's own (embedding, output, base classes) or carried out here.
HONOURED = {
    "activation_fn", "dropout", "attention_dropout", "activation_dropout", "relu_dropout",
    "max_source_positions", "max_target_positions", "share_decoder_input_output_embed", "share_all_embeddings",
    "merge_src_tgt_embed", "no_token_positional_embeddings", "adaptive_softmax_cutoff", "adaptive_softmax_dropout",
    "adaptive_softmax_factor", "layernorm_embedding", "no_scale_embedding",
    "checkpoint_activations", "no_decoder_final_norm",
    "encoder_embed_path", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_layers", "encoder_attention_heads",
    "encoder_normalize_before", "encoder_learned_pos", "encoder_layerdrop",
    "decoder_embed_path", "decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_layers", "decoder_attention_heads",
    "decoder_normalize_before", "decoder_learned_pos", "decoder_layerdrop", "decoder_input_dim", "decoder_output_dim",
}  # fmt: skip
# These only refine an option that is off or refused, or how fairseq wraps layers for fully sharded training.
WITHOUT_EFFECT = {"quant_noise_pq_block_size", "base_sublayers", "base_shuffle", "min_params_to_wrap"}


def test_no_option_of_fairseqs_transformer_is_silently_ignored() -> None:
    nested = {"encoder": EncDecBaseConfig, "decoder": DecoderConfig, "quant_noise": QuantNoiseConfig}
    known = {entry.name for entry in fields(TransformerConfig) if entry.name not in nested and entry.name[0] != "_"}
    for prefix, config in nested.items():
        known |= {f"{prefix}_{entry.name}" for entry in fields(config) if entry.name[0] != "_"}
    assert known == HONOURED | WITHOUT_EFFECT | set(UNSUPPORTED_OPTIONS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--encoder-ode-scheme", "no-such-scheme"], "invalid choice: 'no-such-scheme'"),
        (["--ode-coefficients", "magic"], "invalid choice: 'magic'"),
        (["--max-relative-positions", "-1"], "-1 is not a whole number from 0 on; 0 switches relative positions off"),
        (["--max-relative-positions", "x"], "x is not a whole number"),
        (["--word-dropout-prob", "x"], r"x is not a probability in \[0, 1\)"),
        (["--word-dropout-prob", "1.0"], r"1.0 is not a probability in \[0, 1\)"),
        (["--word-dropout-prob", "nan"], r"nan is not a probability in \[0, 1\)"),
    ],
)
def test_the_parser_names_flag_and_fault(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser()
    ODETransformerModel.add_args(parser)
    with pytest.raises(SystemExit) as raised:
        parser.parse_args(words)
    assert raised.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert words[0] in last
    assert re.search(message, last)


def test_widths_of_the_stacks_may_differ() -> None:
    model = build_model("ode_transformer_rk2", 30, 25, **(SMALL | {"decoder_embed_dim": 24, "decoder_output_dim": 12}))
    assert model.decoder.layers[0]["encoder_attn"].function.k_proj.in_features == 16
    assert model.decoder.output_projection.in_features == 12


def test_the_defaults_are_those_of_the_choice_and_a_step_size_is_a_float() -> None:
    stack = SimpleNamespace(ode_scheme="euler", layer_history="none", normalize_before=True, layerdrop=None)
    options = DEPTH_DEFAULTS | {"max_relative_positions": 0, "encoder": stack}
    assert depth_choice(SimpleNamespace(**options), "encoder") == DepthChoice()
    choice = depth_choice(SimpleNamespace(**options | {"ode_step_size": 2}), "encoder")
    assert (choice, type(choice.step_size)) == (DepthChoice(step_size=2.0), float)
