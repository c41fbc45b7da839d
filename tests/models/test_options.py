"""What the command line can say: architectures, refused combinations, and no option that is silently ignored."""

from argparse import Namespace
from copy import deepcopy
from pathlib import Path

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.tasks.translation import TranslationTask
from models_for_tests import SMALL, small_model

from ode_transformer.models.depth_options import check_task
from ode_transformer.models.model_from_options import build_from_options
from ode_transformer.nn import DepthChoice
from ode_transformer.nn.layer_hooks import depth_stacks
from ode_transformer.nn.model_options import UNSUPPORTED_OPTIONS
from ode_transformer.support.errors import OptionError

ON = {"encoder_layers_to_keep": "0", "decoder_layers_to_keep": "0", "quant_noise_pq": 0.1, "quant_noise_scalar": 0.1,
      "base_layers": 1, "encoder_xformers_att_config": "{}", "decoder_xformers_att_config": "{}"}  # fmt: skip


LANGUAGE_MODEL, BERT = "ode_transformer_lm_euler", "macaron_bert_base"
UNSUPPORTED = [(name, "ode_transformer_euler") for name in UNSUPPORTED_OPTIONS]
UNSUPPORTED += [("scale_fc", LANGUAGE_MODEL), ("mha_reg_scale_factor", BERT)]


@pytest.mark.parametrize(("name", "arch"), UNSUPPORTED)
def test_what_is_not_carried_out_is_refused(name: str, arch: str) -> None:
    with pytest.raises(OptionError, match=f"--{name.replace('_', '-')} is not supported by --arch {arch}"):
        small_model(arch=arch, **{name: ON.get(name, True)})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"post_norm": True, "encoder_normalize_before": True}, "--post-norm and --encoder-normalize-before"),
        (
            {"encoder_ode_scheme": "dlstm", "dlstm_merge": "concat"},
            "--dlstm-merge concat: a layer of the .* a single attention",
        ),
        ({"arch": "reformer", "value_residual": "mean"}, "--value-residual adds values along one text"),
        ({"ode_middle_layers": 3, "encoder_ode_scheme": "rk2"}, "scheme rk2: middle layers 3: the stack has 2 layers"),
        ({"encoder_attention_heads": 3}, "--encoder-attention-heads 3: the heads have to divide the width 16"),
        ({"dropout": 1.5}, "--dropout 1.5: a fraction from 0"),
        ({"arch": "reformer", "encoder_embed_dim": 8}, "--joint-combination add: source and target have widths 8 and"),
        ({"arch": "reformer", "layer_splitting": "strang"}, "--layer-splitting strang is not defined for joint layers"),
        ({"arch": "reformer", "encoder_layers": 0, "encoder_ode_scheme": "rk2"}, "rk2: the stack has no layers"),
        (
            {"arch": "ode_bert_base", "layer_norm_without_affine": True, "encoder_ode_scheme": "dlstm"},
            "--layer-norm-without-affine: --encoder-ode-scheme dlstm",
        ),
        ({"arch": BERT, "encoder_ffn_embed_dim": 25}, "--encoder-ffn-embed-dim 25 is divided between .* even"),
        ({"cpu_bf16": True}, "--cpu-bf16 needs --cpu; a GPU has --amp"),
        ({"log_depth_interval": 1, "adaptive_softmax_cutoff": "10,20"}, "--log-depth-interval does not go with"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict, reason: str) -> None:
    with pytest.raises(OptionError, match=reason) as raised:  # ends fairseq-train with this line and status 1
        small_model(**options)
    assert "\n" not in str(raised.value)


IDLE: dict[str, dict] = {
    "--encoder-ode-function-scope ffn: one whole step": {"encoder_ode_function_scope": "ffn"},
    "--ode-function-scope ffn: one whole step": {"ode_function_scope": "ffn"},
    "--encoder-ode-coefficients vector: the scheme takes": {
        **{"encoder_ode_scheme": "iiet", "encoder_ode_coefficients": "vector", "encoder_layer_history": "none"},
    },
    "--decoder-ode-coefficients vector: with function": {
        **{"decoder_ode_coefficients": "vector", "ode_function": "layer-output", "ode_share_coefficients": True},
    },
    "--encoder-dlstm-merge concat: a layer of the stack has": {
        **{"encoder_ode_scheme": "dlstm", "decoder_ode_scheme": "dlstm", "encoder_dlstm_merge": "concat"},
    },
    "--decoder-value-residual mean: a stack of one layer": {"decoder_value_residual": "mean", "decoder_layers": 1},
    "--ode-middle-layers 2: these are all layers": {"encoder_ode_scheme": "rk2", "ode_middle_layers": 2},
    "--decoder-ode-scheme rk2: the normalisation of a step": {
        **{"decoder_ode_scheme": "rk2", "decoder_ode_normalize_step": True, "decoder_layer_splitting": "strang"},
        "decoder_ode_function_scope": "ffn",
    },
}


@pytest.mark.parametrize("message", IDLE)
def test_what_changes_nothing_is_refused_in_a_new_training_and_still_loads(message: str, tmp_path: Path) -> None:
    options = IDLE[message]
    with pytest.raises(OptionError, match=message):
        small_model(**options)
    # As a saved model, as one that is fine-tuned, and as a training that is resumed.
    state = small_model(**options, ode_options_saved=True).state_dict()
    small_model(**options, finetune_from_model="model.pt").load_state_dict(state)
    run = {"save_dir": str(tmp_path), "restore_file": "checkpoint_last.pt"}
    with pytest.raises(OptionError, match=message):
        small_model(**options, **run)
    (tmp_path / "checkpoint_last.pt").touch()
    small_model(**options, **run).load_state_dict(state)


@pytest.mark.parametrize(
    "options",
    [
        {"encoder_ode_scheme": "rk2", "ode_function_scope": "ffn"},
        {"encoder_ode_scheme": "dlstm", "decoder_ode_scheme": "dlstm", "dlstm_merge": "concat"},
        {"value_residual": "mean", "decoder_layers": 1},
        {"encoder_ode_scheme": "rk2", "decoder_ode_scheme": "rk2", "ode_middle_layers": 2, "encoder_layers": 3},
        {"arch": "reformer", "encoder_layers": 0, "decoder_ode_scheme": "rk2", "ode_coefficients": "gate"},
    ],
)
def test_a_short_flag_that_changes_one_of_the_stacks_is_accepted(options: dict) -> None:
    small_model(**options)


@pytest.mark.parametrize("arch", ["ode_transformer_rk2", "ode_transformer_lm_rk2", "reformer", "macaron_bert_base"])
def test_two_models_are_built_from_the_same_options(arch: str) -> None:
    # BERT's positions are the one option that is completed there, as by fairseq's RoBERTa: checkpoints keep it.
    positions = {"max_target_positions": None, "max_positions": 512 if arch == BERT else None}
    args = Namespace(arch=arch, cpu=True, cpu_bf16=True, **positions, **SMALL)
    ARCH_CONFIG_REGISTRY[arch](args)
    before = deepcopy(vars(args))
    for _ in range(2):
        model = build_from_options(args, 30)
        assert all(stack.trains_in_bfloat16 for stack in depth_stacks(model).values())
        assert vars(args) == before


SEVEN = ("layer_history", "max_relative_positions", "value_residual", "ode_normalize_step", "layer_splitting",
         "ode_step_size", "ode_steps")  # fmt: skip


@pytest.mark.parametrize("name", SEVEN)
def test_a_reformer_without_a_prenet_takes_no_flag_of_its_encoder(name: str) -> None:
    option = next(option for option in DepthChoice.options().values() if option.dest() == name)
    flag = f"encoder_{name}"
    with pytest.raises(OptionError, match=f"--{flag.replace('_', '-')}.*: the stack has no layers"):
        small_model(**{"arch": "reformer", "encoder_layers": 0, flag: option.samples()[1]})


@pytest.mark.parametrize("flag", ["fp16", "bf16"])
def test_half_precision_is_refused_on_a_cpu_before_the_training(flag: str) -> None:
    task, options = TranslationTask.__new__(TranslationTask), Namespace(arch="macaron", cpu=True, **{flag: True})
    with pytest.raises(OptionError, match=f"--{flag} needs a GPU; on a CPU --cpu --cpu-bf16 multiplies in bfloat16"):
        check_task(options, task, "translation")
    check_task(Namespace(**vars(options), ode_options_saved=True), task, "translation")  # of a model that decodes
