"""The stage weights that a trained model reports are those that it uses."""

from typing import Any

import pytest
import torch
from batches import PAD, batch, teacher_forced
from models_for_tests import small_model

from ode_transformer.lab.analysis.depth.coefficients import StageWeights, stage_weights, table

SOURCE, PREVIOUS = batch([6, 3, 4]), teacher_forced(batch([5, 7, 2], seed=1))


def collect(model) -> list[StageWeights]:
    batches = [
        {"net_input": {"src_tokens": SOURCE[rows], "src_lengths": None, "prev_output_tokens": PREVIOUS[rows]}}
        for rows in (slice(0, 2), slice(2, 3))
    ]
    return stage_weights(model, batches)


@pytest.mark.parametrize(
    ("stack", "options"),
    [
        ("encoder", {"encoder_ode_scheme": "rk2"}),
        ("encoder", {"encoder_ode_scheme": "rk2", "ode_steps": 2, "ode_share_coefficients": True}),
        ("decoder", {"arch": "reformer", "decoder_ode_scheme": "rk2"}),  # its positions are those of a grid
    ],
)
def test_the_gate_is_averaged_over_real_positions(stack: str, options: dict[str, Any]) -> None:
    model = small_model(ode_coefficients="gate", **options)
    seen: list[torch.Tensor] = []
    scheme = getattr(model, stack).scheme
    sets = getattr(scheme, "scheme", scheme).coefficients
    handles = [c.register_forward_hook(lambda _, inputs, out: seen.append(out[0].squeeze(-1))) for c in sets]
    with torch.no_grad():
        model(SOURCE, None, PREVIOUS)
    for handle in handles:
        handle.remove()
    rows, steps = collect(model), options.get("ode_steps", 1)
    assert [row.block for row in rows] == [f"{stack} layer 1", f"{stack} layer 2"]
    source, target = SOURCE.ne(PAD), PREVIOUS.ne(PAD)
    positions = source if stack == "encoder" else source[:, :, None] & target[:, None]
    for number, row in enumerate(rows):
        gate = torch.stack(seen[steps * number : steps * (number + 1)])
        real = gate[:, positions]
        assert row.mean == pytest.approx((real.mean().item(), 1 - real.mean().item()), abs=1e-6)
        assert row.deviation[0] == pytest.approx(real.std(correction=0).item(), abs=1e-6)
        assert row.mean[0] != pytest.approx(gate.mean().item(), abs=1e-6)  # padding would have counted


def test_the_tableau_is_reported_and_one_stage_has_nothing_to_report() -> None:
    rows = collect(small_model(encoder_ode_scheme="rk4"))
    assert rows[0].mean == pytest.approx((1 / 6, 2 / 6, 2 / 6, 1 / 6), abs=1e-6)
    assert "encoder layer 1:  0.167 ± 0.000  0.333 ± 0.000" in table(rows)
    assert "nothing to show" in table(collect(small_model()))
    model = small_model(
        encoder_ode_coefficients="vector", decoder_ode_coefficients="vector", encoder_layer_history="none"
    )
    learned = model.encoder.scheme.coefficients[0].weight.mean().item()
    assert collect(model)[0].mean == pytest.approx((learned,), abs=1e-6)


def test_the_weights_of_recurrences_are_their_parameters() -> None:
    plain = {"encoder_layer_history": "none", "decoder_layer_history": "none", "ode_function_scope": "san/ffn"}
    model = small_model(encoder_ode_scheme="multistep", decoder_ode_scheme="dlcl-increments", **plain)
    rows = {row.block: row for row in collect(model)}
    names = [f"encoder layer {n} {name}" for n in (1, 2) for name in ("self_attn", "ffn")][1:]  # the first needs no k
    names += [f"decoder layer {n} {name}" for n in (1, 2) for name in ("self_attn", "encoder_attn", "ffn")]
    assert list(rows) == names
    assert rows["encoder layer 2 self_attn"].mean == pytest.approx((model.encoder.scheme.k[2].item(),), abs=1e-6)
    assert rows["encoder layer 2 self_attn"].deviation == (0.0,)
    weight = model.decoder.scheme.weight
    assert rows["decoder layer 2 self_attn"].mean == pytest.approx(weight[3, :4].tolist(), abs=1e-6)
    assert "nothing to show" in table(collect(small_model(encoder_ode_scheme="polynet", **plain)))


def test_a_prediction_has_weights_of_stages_and_of_earlier_layers() -> None:
    model = small_model(encoder_ode_scheme="pcformer2", ode_coefficients="ema-vector", encoder_layer_history="none")
    rows = {row.block: row.mean for row in collect(model)}
    scheme = model.encoder.scheme
    alpha = scheme.coefficients[1].alpha
    averages = [(alpha * (1 - alpha)).mean().item(), alpha.mean().item()]
    assert rows["encoder layer 2"] == pytest.approx(averages, abs=1e-6)
    combined = [*scheme.weight[2, :3].tolist(), *scheme.output_weight[2, :3].tolist()]
    assert rows["encoder layer 2, earlier layers"] == pytest.approx(combined, abs=1e-6)
