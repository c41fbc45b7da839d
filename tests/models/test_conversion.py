"""Checkpoints of the authors' code, converted, compute what the recordings of that code say."""

import json
import os
import re
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from released_checkpoints import CLIP, HEADS, LAYERS, D, released
from torch.nn.functional import layer_norm, linear

from ode_transformer.cli.command import main
from ode_transformer.models.conversion import convert_checkpoint, convert_options, convert_parameters
from ode_transformer.models.model_from_options import build_from_options
from ode_transformer.support.errors import UserError

GOLDEN = Path(os.environ.get("ODE_GOLDEN_DIR", Path(__file__).parents[3] / "shared" / "golden"))
CASES = sorted(path.name for kind in ("ode_encoder_*", "macaron_*", "reformer_*") for path in GOLDEN.glob(kind))
parity = pytest.mark.parametrize("case", CASES or [pytest.param("", marks=pytest.mark.skip("no recordings"))])


def recording(case: str) -> tuple[dict, dict[str, torch.Tensor]]:
    options = json.loads((GOLDEN / case / f"{case}.json").read_text())["args"]
    return options, {name: torch.from_numpy(array) for name, array in np.load(GOLDEN / case / f"{case}.npz").items()}


def part(recorded: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in recorded.items() if name.startswith(prefix)}


@parity
def test_the_converted_model_computes_what_was_recorded(case: str, tmp_path: Path) -> None:
    """Through a file, the command and fairseq's own loading: encoder, logits, gradients, decoding step by step."""
    from fairseq import checkpoint_utils
    from fairseq.data import Dictionary

    options, recorded = recording(case)
    dictionary = Dictionary()
    for number in range(recorded["sd/encoder.embed_tokens.weight"].size(0) - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    for language in ("en", "de"):
        dictionary.save(str(tmp_path / f"dict.{language}.txt"))
    names = {"task": "translation", "source_lang": "en", "target_lang": "de", "data": str(tmp_path)}
    released = {"args": Namespace(**options, **names), "model": part(recorded, "sd/")}
    torch.save(released, tmp_path / "released.pt")
    assert main(["checkpoint", "convert", str(tmp_path / "released.pt"), "--output", str(tmp_path / "model.pt")]) == 0

    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "model.pt")])
    model = model.double().eval()
    previous, kept = recorded["prev_output_tokens"], recorded["tgt_nonpad_mask"]
    for side in ("right", "left"):
        source = recorded[f"{side}/src_tokens"]
        real = source.ne(1).t()
        encoder_out = model.encoder(source, None)
        got = encoder_out["encoder_out"][0]
        torch.testing.assert_close(got[real], recorded[f"{side}/encoder_out"][real], rtol=0, atol=1e-9)
        logits = model.decoder(previous, encoder_out=encoder_out)[0]
        torch.testing.assert_close(logits[kept], recorded[f"{side}/logits"][kept], rtol=0, atol=1e-9)
        incremental_state: dict = {}
        steps = [
            model.decoder(previous[:, : step + 1], encoder_out=encoder_out, incremental_state=incremental_state)[0]
            for step in range(previous.size(1))
        ]
        expected = recorded[f"{side}/incremental_logits"]
        torch.testing.assert_close(torch.cat(steps, dim=1)[kept], expected[kept], rtol=0, atol=1e-9)

    logits = model(recorded["right/src_tokens"], None, previous)[0]
    for kind, seed in (("sum", kept.unsqueeze(-1).double()), ("weighted", recorded["grad_weight"])):
        model.zero_grad()
        (logits * seed).sum().backward(retain_graph=True)
        expected = convert_parameters(part(recorded, f"grad_{kind}/"))
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        assert gradients.keys() <= expected.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected[name], rtol=0, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


def released_encoder(options: Namespace, model: dict[str, torch.Tensor], y: torch.Tensor) -> torch.Tensor:
    """What the released encoder computes of its embedding y, [T, D], written from its description."""
    model = {name: tensor.double() for name, tensor in model.items()}
    evaluations, pre_norm = options.enc_calculate_num, options.encoder_normalize_before

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, (D,), model[f"{name}.weight"], model[f"{name}.bias"])

    def attention(name: str, x: torch.Tensor) -> torch.Tensor:
        query, key, value = linear(x, model[f"{name}.in_proj_weight"], model[f"{name}.in_proj_bias"]).chunk(3, dim=-1)
        places = torch.arange(len(x))
        table = model[f"{name}.relative_position_keys"][(places - places[:, None]).clamp(-CLIP, CLIP) + CLIP]
        heads = []
        for part in torch.arange(D).chunk(HEADS):
            scores = (query[:, None, part] * (key[None, :, part] + table)).sum(-1) / len(part) ** 0.5
            heads.append(scores.softmax(-1) @ value[:, part])
        return linear(torch.cat(heads, dim=-1), model[f"{name}.out_proj.weight"], model[f"{name}.out_proj.bias"])

    def layer(number: int, x: torch.Tensor) -> torch.Tensor:
        name = f"encoder.layers.{number}"

        def ffn(x: torch.Tensor) -> torch.Tensor:
            inner = linear(x, model[f"{name}.fc1.weight"], model[f"{name}.fc1.bias"]).relu()
            return linear(inner, model[f"{name}.fc2.weight"], model[f"{name}.fc2.bias"])

        for index, function in enumerate((lambda x: attention(f"{name}.self_attn", x), ffn)):
            own = f"{name}.layer_norms.{index}"
            x = x + function(norm(own, x)) if pre_norm else norm(own, x + function(x))
        return x

    def step(number: int, x: torch.Tensor) -> torch.Tensor:
        k1 = layer(number, x)
        if evaluations == 4:
            k2 = layer(number, x + k1 / 2)
            k3 = layer(number, x + k2 / 2)
            return x + (k1 + 2 * k2 + 2 * k3 + layer(number, x + k3)) / 6
        if evaluations == 3:
            k2 = layer(number, x + k1 / 2)
            return x + (k1 + 4 * k2 + layer(number, x + k2)) / 6
        k2 = layer(number, x + k1)
        if options.rk_type == "learnable":
            gate = linear(
                torch.cat([k1, k2], -1), model["encoder.gate_linear.weight"], model["encoder.gate_linear.bias"]
            )
            return x + gate.sigmoid() * k1 + (1 - gate.sigmoid()) * k2
        first, second = model["encoder.alpha"] if options.rk_type == "initialization" else (0.5, 0.5)
        return x + first * k1 + second * k2

    history = getattr(options, "encoder_history_type", None)
    memory, x = [y], y
    if history == "learnable_dense":
        x = model["encoder.history.weight"][0, 0] * y
    for number in range(LAYERS):
        x = step(number, x)
        if history is not None:
            own = f"encoder.history.layer_norms.{number}"
            memory.append(norm(own, x) if pre_norm else x)
            mean = [1 / len(memory)] * len(memory)
            weights = mean if history == "dense" else model["encoder.history.weight"][number + 1]
            x = sum(w * s for w, s in zip(weights, memory, strict=False))
            x = x if pre_norm else norm(own, x)
    return norm("encoder.layer_norm", x) if pre_norm else x


VARIANTS = {
    "half": {"enc_calculate_num": 2},
    "scalars": {"enc_calculate_num": 2, "rk_type": "initialization"},
    "gate": {"enc_calculate_num": 2, "rk_type": "learnable", "encoder_history_type": "learnable_dense"},
    "rk3": {"enc_calculate_num": 3, "encoder_history_type": "dense"},
    "rk4": {"enc_calculate_num": 4, "encoder_history_type": "learnable_dense"},
    "post-norm": {"encoder_normalize_before": False, "decoder_normalize_before": False},
    "post-norm-scalars": {"enc_calculate_num": 2, "rk_type": "initialization", "encoder_normalize_before": False,
                          "decoder_normalize_before": False, "encoder_history_type": "learnable_dense"},
    "post-norm-dense": {"enc_calculate_num": 2, "rk_type": "learnable", "encoder_normalize_before": False,
                        "decoder_normalize_before": False, "encoder_history_type": "dense"},
    "tied": {"share_decoder_input_output_embed": True, "decoder_history_type": "dense"},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_released_encoder(variant: str) -> None:
    """Those without a recording, too; the embeddings are tied in one of them."""
    options, model = released(**VARIANTS[variant])
    converted = convert_checkpoint({"args": options, "model": model})
    ours = build_from_options(converted["args"], 20, 22).double().eval()
    ours.load_state_dict({name: tensor.double() for name, tensor in converted["model"].items()})
    source = torch.tensor([[5, 9, 4, 17, 8, 2]])
    with torch.no_grad():
        y0, _ = ours.encoder.forward_embedding(source)
        torch.testing.assert_close(y0[0] - ours.encoder.embed_positions(source)[0],
                                   D**0.5 * model["encoder.embed_tokens.weight"].double()[source[0]])  # fmt: skip
        encoder_out = ours.encoder(source, None)
        torch.testing.assert_close(encoder_out["encoder_out"][0][:, 0], released_encoder(options, model, y0[0]))
        features = ours.decoder(source, encoder_out=encoder_out, features_only=True)[0]
        logits = ours.decoder(source, encoder_out=encoder_out)[0]
    output = "decoder.embed_tokens.weight" if variant == "tied" else "decoder.embed_out"
    torch.testing.assert_close(logits, linear(features, model[output].double()))


def test_options_and_names() -> None:
    options, model = released(use_word_dropout=True, word_dropout=0.8)
    made = convert_checkpoint({"args": options, "model": model})
    ours = made["args"]
    assert (ours.encoder_ode_scheme, ours.ode_coefficients, ours.ode_function) == ("rk4", "tableau", "layer-output")
    assert (ours.encoder_layer_history, ours.max_relative_positions, ours.relative_values) == ("none", 2, False)
    assert (ours.dropout, ours.activation_dropout) == (0.3, 0.2)
    assert ours.word_dropout_prob == pytest.approx(0.2)
    attention = made["model"], "encoder.layers.0.self_attn.function"
    for number, projection in enumerate("qkv"):
        block = model["encoder.layers.0.self_attn.in_proj_weight"][8 * number : 8 * number + 8]
        assert torch.equal(attention[0][f"{attention[1]}.{projection}_proj.weight"], block)
    assert torch.equal(made["model"]["decoder.output_projection.weight"], model["decoder.embed_out"])
    args, model = released(encoder_history_type="dense", decoder_history_type="learnable_dense")
    for stack in ("encoder", "decoder"):
        for layer in range(LAYERS):
            model[f"{stack}.layers.{layer}.self_attn.relative_position_values"] = torch.randn(5, 4)
    ours = convert_checkpoint({"args": args, "model": model})["args"]
    assert (ours.encoder_layer_history, ours.decoder_layer_history, ours.relative_values) == ("dense", "dlcl", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_history_type": "residual"}, "encoder_history_type 'residual' is not supported"),
        ({"encoder_history_type": "dense", "encoder_integration_type": "sum"}, "encoder_integration_type 'sum'"),
        ({"adaptive_softmax_cutoff": "9"}, "adaptive_softmax_cutoff '9' is not supported"),
        ({"dec_calculate_num": 2}, "dec_calculate_num 2 is not supported"),
        ({"enc_calculate_num": 5}, "enc_calculate_num 5 is not supported; known are 1, 2, 3, 4"),
        ({"arch": "polynomial_transformer_t2t_wmt_en_de"}, "architecture polynomial_transformer_t2t_wmt_en_de is not"),
        ({"enc_ffn_step": 1}, "architecture ode_transformer_t2t_wmt_en_de is not converted"),
    ],
)
def test_models_that_we_do_not_have(options: dict, message: str) -> None:
    args, model = released(**options)
    with pytest.raises(UserError, match=message):
        convert_options(args, model)


def test_coefficients_have_to_be_those_that_the_options_say() -> None:
    for options, other in (("learnable", "standard"), ("standard", "learnable"), ("initialization", "learnable")):
        args, _ = released(enc_calculate_num=2, rk_type=options)
        _, model = released(enc_calculate_num=2, rk_type=other)
        with pytest.raises(UserError, match=f"rk_type '{options}' does not fit its parameters"):
            convert_options(args, model)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("encoder.embed_tokens.weight", None, "language models are not converted"),
        ("encoder.layers.0.layer_norms.7.bias", (8,), "layer_norms.7.bias belongs to none"),
        ("encoder.layers.0.fc1.bias", None, r"Missing key.*encoder\.layers\.0\.ffn\.function\.fc1\.bias"),
        ("encoder.alpha", (2,), r"rk_type 'standard' does not fit its parameters: coefficients \['scalar'\]"),
    ],
)
def test_a_file_that_does_not_fit(
    name: str, shape: tuple[int, ...] | None, message: str, tmp_path: Path, capsys
) -> None:
    """A parameter is missing, or there is one of this shape; the command writes nothing."""
    args, model = released(enc_calculate_num=1)
    if shape is None:
        del model[name]
    else:
        model[name] = torch.ones(shape)
    torch.save({"args": args, "model": model}, tmp_path / "released.pt")
    assert main(["checkpoint", "convert", str(tmp_path / "released.pt"), "--output", str(tmp_path / "ours.pt")]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert not (tmp_path / "ours.pt").exists()
