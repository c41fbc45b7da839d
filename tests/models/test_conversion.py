"""Checkpoints of the authors' code, converted, compute what the recordings of that code say."""

import json
import re
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from recordings import RECORDINGS, part, read_recording
from released_checkpoints import released
from torch.nn.functional import linear

from ode_transformer.checkpoints.conversion import convert_checkpoint, convert_options, convert_parameters
from ode_transformer.cli.command import main
from ode_transformer.models.model_from_options import build_from_options, numbered_dictionary
from ode_transformer.support.errors import UserError

CASES = ("ode_encoder_rk2_gate__learnable_dense", "ode_encoder_rk4__none", "macaron_encdec__prenorm", "reformer_fast")


@pytest.mark.parametrize("case", CASES)
def test_the_converted_model_computes_what_was_recorded(case: str, tmp_path: Path) -> None:
    """Through a file, the command and fairseq's own loading: encoder, logits, gradients, decoding step by step."""
    from fairseq import checkpoint_utils

    options = json.loads((RECORDINGS / case / f"{case}.json").read_text())["args"]
    recorded = read_recording(case)
    dictionary, path = numbered_dictionary(len(recorded["sd/encoder.embed_tokens.weight"])), tmp_path / "model.pt"
    for language in ("en", "de"):
        dictionary.save(str(tmp_path / f"dict.{language}.txt"))
    names = {"task": "translation", "source_lang": "en", "target_lang": "de", "data": str(tmp_path)}
    released = {"args": Namespace(**options, **names), "model": part(recorded, "sd/")}
    torch.save(released, tmp_path / "released.pt")
    assert main(["checkpoint", "convert", str(tmp_path / "released.pt"), "--output", str(path)]) == 0

    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(tmp_path)})
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
        torch.testing.assert_close(torch.cat(steps, dim=1)[kept], logits[kept], rtol=0, atol=1e-9)

    logits = model(recorded["right/src_tokens"], None, previous)[0]
    (logits * recorded["grad_weight"]).sum().backward()
    expected = convert_parameters(part(recorded, "grad_weighted/"))
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert gradients.keys() <= expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


POST_NORM = {"encoder_normalize_before": False, "decoder_normalize_before": False}
VARIANTS = [  # released options; scheme, coefficients, histories of encoder and decoder
    ({"enc_calculate_num": 2}, ("rk2", "tableau", "none", "none")),
    ({"enc_calculate_num": 2, "rk_type": "initialization"}, ("rk2", "scalar", "none", "none")),
    (
        {"enc_calculate_num": 2, "rk_type": "learnable", "encoder_history_type": "learnable_dense"},
        ("rk2", "gate", "dlcl", "none"),
    ),
    ({"enc_calculate_num": 3, "encoder_history_type": "dense"}, ("rk3-released", "tableau", "dense", "none")),
    ({"encoder_history_type": "learnable_dense"} | POST_NORM, ("rk4", "tableau", "dlcl", "none")),
    ({"decoder_history_type": "dense", "share_decoder_input_output_embed": True}, ("rk4", "tableau", "none", "dense")),
]


@pytest.mark.parametrize(("variant", "expected"), VARIANTS, ids=str)
def test_every_variant_of_the_released_encoder(variant: dict, expected: tuple[str, ...]) -> None:
    """Those without a recording, too: the options, and that the parameters are those of the model that they build."""
    options, released_parameters = released(**variant)
    converted = convert_checkpoint({"args": options, "model": released_parameters})
    ours = converted["args"]
    histories = ours.encoder_layer_history, ours.decoder_layer_history
    assert (ours.encoder_ode_scheme, ours.ode_coefficients, *histories) == expected
    model = build_from_options(ours, 20, 22).eval()
    model.load_state_dict(converted["model"])
    tied = variant.get("share_decoder_input_output_embed", False)
    output = released_parameters["decoder.embed_tokens.weight" if tied else "decoder.embed_out"]
    source = torch.tensor([[5, 9, 4, 17, 8, 2]])
    with torch.no_grad():
        features = model(source, None, source, features_only=True)[0]
        torch.testing.assert_close(model(source, None, source)[0], linear(features, output))


def test_options_of_reformer() -> None:
    chain = "attn1d:dec+ffn2d:dec+attn1d:enc+ffn2d:enc"
    options = {"arch": "reformer_base", "layer_chain": chain, "src_tgt_embed": False, "dropout": 0.3}
    embeddings = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    parameters = dict.fromkeys((*embeddings, "decoder.layers.0.sublayers.0.layer_norm.weight"), torch.ones(2))
    for layers, arch in ((0, "reformer_base"), (2, "reformer_fast")):
        prenet = {f"encoder.layers.{layer}.fc1.weight": torch.ones(2) for layer in range(layers)}
        for released_input, combination in (("add", "add"), ("cat", "concat")):
            for released_output, reduction in (("attn", "softmax"), ("max", "max")):
                parts = {"decoder_input_layer": released_input, "decoder_output_layer": released_output}
                ours = convert_options(Namespace(**options, **parts), parameters | prenet)
                assert (ours.arch, ours.encoder_layers, ours.joint_input) == (arch, layers, "released")
                assert (ours.joint_combination, ours.joint_reduction, ours.dropout) == (combination, reduction, 0.3)
    for changes in ({"layer_chain": "attn1d:dec+ffn2d:enc"}, {"decoder_input_layer": "mul"}, {"src_tgt_embed": True}):
        with pytest.raises(UserError, match=f"{next(iter(changes))} .* is not supported; known are"):
            convert_options(Namespace(**(options | parts | changes)), parameters)


def test_a_file_that_does_not_fit(tmp_path: Path, capsys) -> None:
    args, model = released(enc_calculate_num=1)
    torch.save({"args": args, "model": model | {"encoder.alpha": torch.ones(2)}}, tmp_path / "released.pt")
    assert main(["checkpoint", "convert", str(tmp_path / "released.pt"), "--output", str(tmp_path / "ours.pt")]) == 2
    error = capsys.readouterr().err
    assert re.search(r"rk_type 'standard' does not fit its parameters: coefficients \['scalar'\]", error)
    assert error.count("\n") == 1
    assert not (tmp_path / "ours.pt").exists()
