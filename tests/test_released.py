"""Checkpoints of the authors' code, converted, compute what the recordings of that code say."""

import json
import os
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

from ode_transformer.checkpoints import load_checkpoint
from ode_transformer.cli import main
from ode_transformer.errors import UserError
from ode_transformer.released import convert_checkpoint, convert_options, convert_parameters

GOLDEN = Path(os.environ.get("ODE_GOLDEN_DIR", Path(__file__).parents[2] / "shared" / "golden"))
CASES = sorted(path.name for kind in ("ode_encoder_*", "macaron_*") for path in GOLDEN.glob(kind))
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
    assert main(["convert", str(tmp_path / "released.pt"), "--output", str(tmp_path / "model.pt")]) == 0

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


def released(**changes: object) -> tuple[Namespace, dict[str, torch.Tensor]]:
    """A released checkpoint of one layer a stack, as the released code lays it out."""
    d, f = 8, 12
    shapes = {
        "self_attn.in_proj_weight": (3 * d, d),
        "self_attn.in_proj_bias": (3 * d,),
        "self_attn.out_proj.weight": (d, d),
        "self_attn.out_proj.bias": (d,),
        "self_attn.relative_position_keys": (5, d // 2),
        "fc1.weight": (f, d),
        "fc1.bias": (f,),
        "fc2.weight": (d, f),
        "fc2.bias": (d,),
    }
    names = {f"encoder.layers.0.{name}": shape for name, shape in shapes.items()}
    names |= {f"decoder.layers.0.{name}": shape for name, shape in shapes.items()}
    names |= {
        f"decoder.layers.0.encoder_attn.{name.removeprefix('self_attn.')}": shape
        for name, shape in shapes.items()
        if "proj" in name
    }
    for kind in ("weight", "bias"):
        names |= {f"encoder.layers.0.layer_norms.{number}.{kind}": (d,) for number in (0, 1)}
        norms = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
        names |= {f"decoder.layers.0.{norm}.{kind}": (d,) for norm in norms}
        names |= {f"{stack}.layer_norm.{kind}": (d,) for stack in ("encoder", "decoder")}
    names |= {"encoder.embed_tokens.weight": (20, d), "decoder.embed_tokens.weight": (22, d)}
    names |= {"decoder.embed_out": (22, d), "encoder.version": (1,), "decoder.version": (1,)}
    generator = torch.Generator().manual_seed(0)
    model = {name: torch.randn(shape, generator=generator) for name, shape in names.items()}
    sizes = {"embed_dim": d, "ffn_embed_dim": f, "layers": 1, "attention_heads": 2}
    options = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in sizes.items()}
    options |= {"share_all_embeddings": False, "share_decoder_input_output_embed": False, "rk_type": "standard"}
    options |= {"max_relative_length": 2, "enc_calculate_num": 4, "relu_dropout": 0.2, "dropout": 0.3}
    return Namespace(**(options | changes)), model


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


@pytest.mark.parametrize(
    ("extra", "options", "expected"),
    [
        ({"encoder.gate_linear.weight": (1, 16), "encoder.gate_linear.bias": (1,)}, {"enc_calculate_num": 2}, "gate"),
        ({"encoder.alpha": (2,)}, {"enc_calculate_num": 2, "rk_type": "initialization"}, "scalar"),
        ({}, {"enc_calculate_num": 3}, "tableau"),
        ({}, {"enc_calculate_num": 2}, "tableau"),
    ],
)
def test_coefficients(extra: dict, options: dict, expected: str) -> None:
    args, model = released(**options)
    model |= {name: torch.randn(shape) for name, shape in extra.items()}
    made = convert_checkpoint({"args": args, "model": model})
    assert made["args"].ode_coefficients == expected
    if extra:
        (name, *_) = extra
        values = [tensor for key, tensor in made["model"].items() if "coefficients.0" in key]
        assert len(values) == len(extra)
        assert torch.equal(values[0], model[name])


def test_dense_history_and_relative_values() -> None:
    args, model = released(encoder_history_type="dense", decoder_history_type="learnable_dense")
    for stack in ("encoder", "decoder"):
        model |= {f"{stack}.history.layer_norms.0.{kind}": torch.randn(8) for kind in ("weight", "bias")}
        model[f"{stack}.layers.0.self_attn.relative_position_values"] = torch.randn(5, 4)
    model["decoder.history.weight"] = torch.randn(2, 2)
    ours = convert_checkpoint({"args": args, "model": model})["args"]
    assert (ours.encoder_layer_history, ours.decoder_layer_history, ours.relative_values) == ("dense", "dlcl", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_history_type": "residual"}, "encoder_history_type 'residual' is not supported"),
        ({"encoder_history_type": "dense", "encoder_integration_type": "sum"}, "encoder_integration_type 'sum'"),
        ({"enc_calculate_num": 5}, "enc_calculate_num 5 is not supported; known are 1, 2, 3, 4"),
        ({"adaptive_softmax_cutoff": "9"}, "adaptive_softmax_cutoff is not supported"),
    ],
)
def test_parts_that_we_do_not_have(options: dict, message: str) -> None:
    args, model = released(**options)
    with pytest.raises(UserError, match=message):
        convert_options(args, model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.pop("encoder.layers.0.fc1.bias"), r"lacks encoder\.layers\.0\.ffn\.function\.fc1\.bias"),
        (
            lambda model: model.update({"encoder.layer_norm.bias": torch.ones(3)}),
            r"layer_norm.bias is \(3,\), not \(8,\)",
        ),
        (lambda model: model.update({"encoder.alpha": torch.ones(2)}), "weigh at least two|scalar"),
        (
            lambda model: model.update({"encoder.conv.weight": torch.ones(2)}),
            "encoder.conv.weight is none of the released",
        ),
        (lambda model: model.update({"encoder.layers.1.fc1.bias": torch.ones(12)}), "has besides encoder.layers.1"),
    ],
)
def test_a_file_that_does_not_fit_is_one_line_and_leaves_nothing(change, message, tmp_path: Path, capsys) -> None:
    args, model = released(enc_calculate_num=1)
    change(model)
    torch.save({"args": args, "model": model}, tmp_path / "released.pt")
    assert main(["convert", str(tmp_path / "released.pt"), "--output", str(tmp_path / "model.pt")]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert str(tmp_path / "released.pt") in error
    import re

    assert re.search(message, error)
    assert not (tmp_path / "model.pt").exists()


def test_a_checkpoint_of_ours_is_not_converted_again(tmp_path: Path, capsys) -> None:
    options, model = released()
    torch.save(convert_checkpoint({"args": options, "model": model}), tmp_path / "ours.pt")
    assert load_checkpoint(tmp_path / "ours.pt")
    assert main(["convert", str(tmp_path / "ours.pt"), "--output", str(tmp_path / "again.pt")]) == 2
    assert "none of the released models" in capsys.readouterr().err
