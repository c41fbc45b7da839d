"""A folder of Hugging Face's transformers generates the tokens of the checkpoint, for models of every kind."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import split_projections
from limited_functions import answer
from plain_models import ANY_NAME, PAIRS, make_plain_model
from safetensors.torch import load_file, save_file

from ode_transformer.cli.command import main
from ode_transformer.decoding import loading
from ode_transformer.support.errors import UserError

SOURCES = [source for source, _ in PAIRS[:5]] + ["The 12 unknown Wörter </s> sleep"]
KINDS: dict[str, dict[str, Any]] = {
    "rk2": {"share_all_embeddings": True},
    "iiet": {"arch": "ode_transformer_iiet_tiny", "encoder_learned_pos": True, "activation_fn": "gelu"},
    "dlstm": {"arch": "dlstm_tiny"},
    "reformer": {"arch": "reformer_fast_tiny"},
    "bfloat16": {"cpu_bf16": True},
}


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep transformers from looking anywhere else, and its copies of modules in the test's folder."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))


def export(model: Path, status: int = 0) -> Path:
    folder = model.parent / "exported"
    assert main(["export", "--to", "huggingface", "--path", str(model), "--output", str(folder)]) == status
    return folder


def load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer  # slow

    remote = {"trust_remote_code": True, "local_files_only": True}
    return AutoModelForSeq2SeqLM.from_pretrained(folder, **remote), AutoTokenizer.from_pretrained(folder, **remote)


@pytest.mark.parametrize("kind", KINDS)
def test_generate_gives_the_tokens_of_the_checkpoint(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / ANY_NAME
    folder.mkdir()
    make_plain_model(folder, **KINDS[kind])
    translator = loading.load(folder)
    model, tokenizer = load(export(folder / "model.pt"))
    batch = tokenizer(SOURCES, return_tensors="pt", padding=True)
    sources = [translator.encode(source) for source in SOURCES]
    for ids, mask, source in zip(batch["input_ids"], batch["attention_mask"], sources, strict=True):
        assert torch.equal(ids[mask.bool()], source)
    for beam, penalty in ((1, 1.0), (4, 0.6)) if kind == "rk2" else ((4, 0.6),):
        hypotheses = translator.generate(sources, beam=beam, lenpen=penalty, max_len_b=12)
        expected = [best["tokens"].tolist() for best, *_ in hypotheses]
        found = model.generate(**batch, num_beams=beam, length_penalty=penalty, max_length=14)
        assert [[token for token in row[1:].tolist() if token != 1] for row in found] == expected
        texts = tokenizer.batch_decode(found, skip_special_tokens=True)
        assert texts == [translator.decode(torch.tensor(tokens)).replace("<unk>", "") for tokens in expected]
    assert len(set(texts)) > 1


def test_a_folder_that_transformers_saves_again_and_a_loss(tmp_path: Path) -> None:
    """With embeddings that are tied on one side, and dictionaries of two sizes."""
    make_plain_model(tmp_path, share_decoder_input_output_embed=True)
    model, tokenizer = load(export(tmp_path / "model.pt"))
    batch = tokenizer(SOURCES, text_target=[target for _, target in PAIRS[:6]], return_tensors="pt", padding=True)
    with torch.no_grad():
        loss = model(**batch).loss
    model.save_pretrained(tmp_path / "again")
    tokenizer.save_pretrained(tmp_path / "again")
    model, tokenizer = load(tmp_path / "again")
    batch = tokenizer(SOURCES, text_target=[target for _, target in PAIRS[:6]], return_tensors="pt", padding=True)
    with torch.no_grad():
        assert torch.equal(model(**batch).loss, loss)


def test_a_folder_of_an_earlier_version(tmp_path: Path) -> None:
    """Its attentions keep Q, K and V apart; transformers writes it again in its own form."""
    make_plain_model(tmp_path, ode_stage_parameters="separate", decoder_ode_scheme="rk2")
    folder = export(tmp_path / "model.pt")
    expected = load(folder)[0].state_dict()
    save_file(
        split_projections(load_file(folder / "model.safetensors")), folder / "model.safetensors", {"format": "pt"}
    )
    model, tokenizer = load(folder)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "again")
    for loaded in (model, load(tmp_path / "again")[0]):
        assert list(loaded.state_dict()) == list(expected)
        assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.state_dict().items())


@pytest.mark.parametrize("positions", [0, 8])
def test_a_prefix_of_several_tokens(positions: int, tmp_path: Path) -> None:
    """The caches see all of it."""
    make_plain_model(tmp_path, max_relative_positions=positions)
    model, tokenizer = load(export(tmp_path / "model.pt"))
    batch = tokenizer(SOURCES[:2], return_tensors="pt", padding=True)
    prefix = torch.tensor([[2, 9, 11]] * 2)
    with_cache, without = (
        model.generate(**batch, decoder_input_ids=prefix, use_cache=use_cache, num_beams=2, max_length=12)
        for use_cache in (True, False)
    )
    assert torch.equal(with_cache, without)
    assert torch.equal(with_cache[:, :3], prefix)


@pytest.mark.parametrize(
    "search",
    [{}, {"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True, "num_beams": 2}, {"min_length": 5}],
    ids=str,
)
def test_a_blank_line_stays_blank(search: dict[str, Any], tmp_path: Path) -> None:
    make_plain_model(tmp_path)
    model, tokenizer = load(export(tmp_path / "model.pt"))
    batch = tokenizer([SOURCES[0], "", " "], return_tensors="pt", padding=True)
    found = model.generate(**batch, **search, max_length=12)
    first, *blank = tokenizer.batch_decode(found, skip_special_tokens=True)[:: search.get("num_return_sequences", 1)]
    assert first
    assert blank == ["", ""]
    prefix = torch.tensor([[2, 9, 11]] * 3)
    assert torch.equal(model.generate(**batch, decoder_input_ids=prefix, max_length=12)[:, :3], prefix)


def test_a_small_folder_does_not_occupy_the_machine(tmp_path: Path) -> None:
    make_plain_model(tmp_path)
    folder = export(tmp_path / "model.pt")
    text = (folder / "config.json").read_text()
    for name, value, message in (
        ("encoder_layers", 10**30, "option encoder_layers is 10{30}, more than 1,000"),
        ("decoder_layers", 1000, "its options describe far more parameters"),
        ("encoder_embed_dim", 2**16, "its options describe far more parameters"),
        ("target_size", 10**9, "option target_size is 10{9}, more than 1,048,576"),
    ):
        config = json.loads(text)
        (config if name in config else config["options"])[name] = value
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(UserError, match=f"refused: {message}"):
            load(folder)


def test_a_configuration_alone_does_not_occupy_the_machine(tmp_path: Path) -> None:
    """As AutoModelForSeq2SeqLM.from_config builds it, without parameters to compare with."""
    from ode_transformer.export.huggingface_model import ODETransformerConfig, ODETransformerForSeq2SeqLM

    make_plain_model(tmp_path)
    config = export(tmp_path / "model.pt") / "config.json"
    options = json.loads(config.read_text())["options"]
    assert ODETransformerForSeq2SeqLM(ODETransformerConfig(options, 20, 30))
    for changes in (
        {"decoder_layers": 1000},
        {"encoder_embed_dim": 2**16, "encoder_attention_heads": 2},
        {"decoder_ffn_embed_dim": 2**16, "decoder_embed_dim": 2**14},
    ):
        assert "refused: its options describe a model too large" in answer(
            lambda more=changes: ODETransformerForSeq2SeqLM(ODETransformerConfig(options | more, 20, 30))
        )
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_labels": 10**8}))
    for opened in (load, lambda folder: ODETransformerForSeq2SeqLM.from_pretrained(folder)):
        assert answer(lambda opened=opened: opened(config.parent)) == (
            "refused: option num_labels is 100000000, more than 10,000"
        )
