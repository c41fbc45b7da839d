"""What users of Hugging Face's transformers do with any model works with an exported one: training and generation.

All tests share one exported model, and one that transformers' Trainer has trained until it knows some sentences.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers  # imports its parts when they are used
from conftest import SharedFolder
from plain_models import NO_DROPOUT, PAIRS, make_plain_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from ode_transformer.cli.command import main
from ode_transformer.support.errors import UserError

SENTENCES = PAIRS[:8]
PAD, EOS = 1, 2
NORM = "model.decoder.layer_norm.weight"
LIMIT = 12  # tokens of a generated target, the first one included


@pytest.fixture(scope="module", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep transformers' copies of modules in the tests' folder, and the one thread that other tests have."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def exported(shared_folder: SharedFolder) -> Path:
    def fill(folder: Path) -> None:
        path = make_plain_model(folder, share_all_embeddings=True, **NO_DROPOUT)
        assert main(["export", "--to", "huggingface", "--path", str(path), "--output", str(folder / "start")]) == 0
        model, tokenizer = load(folder / "start")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.div_(4)  # the size with which a training starts
        model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")

    return shared_folder("exported for transformers", fill) / "model"


@pytest.fixture(scope="module")
def learned(exported: Path, shared_folder: SharedFolder) -> Path:
    """The model after a training in accumulated batches."""

    def fill(folder: Path) -> None:
        settings = {"max_steps": 150, "learning_rate": 5e-3, "per_device_train_batch_size": 4, "warmup_steps": 10}
        trainer = prepare_trainer(*load(exported), folder, gradient_accumulation_steps=2, **settings)
        trainer.train()
        trainer.save_model(folder / "model")

    return shared_folder("trained by transformers", fill) / "model"


def load(folder: Path, **settings: Any) -> tuple[Any, Any]:
    remote = {"trust_remote_code": True, "local_files_only": True}
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, **remote, **settings)
    has_tokenizer = (folder / "vocab.json").exists()  # which save_pretrained of the model alone does not write
    return model, transformers.AutoTokenizer.from_pretrained(folder, **remote) if has_tokenizer else None


def prepare_trainer(model: Any, tokenizer: Any, folder: Path, **settings: Any) -> Any:
    """Return transformers' trainer for the sentences; ``settings`` are training arguments."""
    sources, targets = zip(*SENTENCES, strict=True)
    batch = tokenizer(list(sources), text_target=list(targets))
    examples = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
    defaults = {"output_dir": folder, "use_cpu": True, "report_to": "none", "disable_tqdm": True, "logging_steps": 1}
    arguments = transformers.Seq2SeqTrainingArguments(**{**defaults, "save_strategy": "no", "seed": 1, **settings})
    collator = transformers.DataCollatorForSeq2Seq(tokenizer, model=model)
    return transformers.Seq2SeqTrainer(
        model, arguments, collator, train_dataset=examples, eval_dataset=examples, processing_class=tokenizer
    )


def one_update(exported: Path, folder: Path, batch_size: int = 8, **settings: Any) -> tuple[float, list[Tensor]]:
    """Return the loss of one update of plain gradient descent and the parameters after it."""
    settings = {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "max_steps": 1, **settings}
    trainer = prepare_trainer(*load(exported), folder, per_device_train_batch_size=batch_size, **settings)
    trainer.train()
    return trainer.state.log_history[0]["loss"], list(trainer.model.parameters())


def batch_of(tokenizer: Any) -> Any:
    """Return the sentences as tensors, padded, whose padding in ``labels`` does not count."""
    sources, targets = zip(*SENTENCES, strict=True)
    batch = tokenizer(list(sources), text_target=list(targets), return_tensors="pt", padding=True)
    batch["labels"] = batch["labels"].masked_fill(batch["labels"] == PAD, -100)
    return batch


def translations(model: Any, tokenizer: Any, **settings: Any) -> list[str]:
    sources = tokenizer([source for source, _ in SENTENCES], return_tensors="pt", padding=True)
    return tokenizer.batch_decode(model.generate(**sources, **settings), skip_special_tokens=True)


def test_a_trained_model_predicts_what_it_was_taught(learned: Path, tmp_path: Path) -> None:
    trainer = prepare_trainer(*load(learned), tmp_path, predict_with_generate=True, generation_max_length=30)
    prediction = trainer.predict(trainer.eval_dataset)
    tokens = prediction.predictions
    texts = trainer.processing_class.batch_decode(torch.as_tensor(tokens).clamp(min=0), skip_special_tokens=True)
    assert texts == [target for _, target in SENTENCES]
    assert prediction.metrics["test_loss"] < 0.1


def test_accumulated_batches_are_one_batch(exported: Path, tmp_path: Path) -> None:
    """Although they have different numbers of words."""
    loss, parameters = one_update(exported, tmp_path)
    accumulated_loss, accumulated = one_update(exported, tmp_path, 2, gradient_accumulation_steps=4)
    assert accumulated_loss == pytest.approx(loss, abs=1e-3)
    torch.testing.assert_close(accumulated, parameters, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 4])
def test_label_smoothing(steps: int, exported: Path, tmp_path: Path) -> None:
    model, tokenizer = load(exported)
    batch = batch_of(tokenizer)
    counted = batch["labels"] != -100
    with torch.no_grad():
        log_probs = model(**batch).logits.log_softmax(-1)[counted]  # [words, V]
    likelihood = log_probs.gather(1, batch["labels"][counted][:, None]).mean()
    expected = -0.9 * likelihood - 0.1 * log_probs.mean()
    size = 8 // steps
    loss, _ = one_update(exported, tmp_path, size, label_smoothing_factor=0.1, gradient_accumulation_steps=steps)
    assert loss == pytest.approx(expected.item(), abs=1e-3)


def test_smoothing_without_the_inputs_of_the_decoder_says_what_is_missing(exported: Path) -> None:
    model, tokenizer = load(exported)
    with pytest.raises(UserError, match="DataCollatorForSeq2Seq"):
        model(**tokenizer(["A dog"], return_tensors="pt"))


def test_training_in_bfloat16(exported: Path, tmp_path: Path) -> None:
    loss, parameters = one_update(exported, tmp_path)
    rounded_loss, rounded = one_update(exported, tmp_path, bf16=True)
    assert rounded_loss == pytest.approx(loss, rel=0.01)
    assert rounded_loss != loss
    assert {parameter.dtype for parameter in rounded} == {torch.float32}
    torch.testing.assert_close(rounded, parameters, rtol=0.05, atol=0.05)


def test_gradient_checkpointing_saves_memory_and_changes_no_gradient(exported: Path, tmp_path: Path) -> None:
    _, parameters = one_update(exported, tmp_path)
    _, recomputed = one_update(exported, tmp_path, gradient_checkpointing=True)
    torch.testing.assert_close(recomputed, parameters, rtol=0, atol=1e-6)
    model, tokenizer = load(exported)
    kept = []
    for enable in (model.gradient_checkpointing_disable, model.gradient_checkpointing_enable):
        enable()
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):
            model.train()(**batch_of(tokenizer))
        kept.append(sum(sizes))
    assert kept[1] < 0.6 * kept[0]


def test_a_resumed_training_ends_where_one_go_does(exported: Path, tmp_path: Path) -> None:
    settings = {"max_steps": 4, "per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": 2}
    whole = prepare_trainer(*load(exported), tmp_path, **settings)
    whole.train()
    resumed = prepare_trainer(*load(exported), tmp_path, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert all(map(torch.equal, resumed.model.parameters(), whole.model.parameters()))
    saved = load(tmp_path / "checkpoint-4")[0].parameters()
    assert all(map(torch.equal, saved, whole.model.parameters()))


@pytest.mark.parametrize(
    "settings",
    [{"top_k": 2}, {"top_p": 0.5}, {"top_k": 0, "temperature": 5.0}, {"num_beams": 3, "top_k": 2}, {"min_p": 0.3}],
)
def test_sampled_texts_end_at_the_limit(settings: dict[str, Any], exported: Path) -> None:
    """An untrained model seldom ends by itself, and sampling leaves few words of which the end is none."""
    model, tokenizer = load(exported)
    torch.manual_seed(1)
    sources = tokenizer([source for source, _ in SENTENCES], return_tensors="pt", padding=True)
    settings = {"num_beams": 1, **settings}
    tokens = model.generate(**sources, do_sample=True, max_length=LIMIT, num_return_sequences=3, **settings)
    ends = (tokens[:, 1:] == EOS).sum(1)
    assert tokens.shape == (24, LIMIT)
    assert ends.tolist() == [1] * 24


def test_sampling_among_one_word_is_greedy(learned: Path) -> None:
    model, tokenizer = load(learned)
    expected = translations(model, tokenizer, num_beams=1)
    assert translations(model, tokenizer, num_beams=1, do_sample=True, top_k=1) == expected
    assert expected == [target for _, target in SENTENCES]


def test_beams_return_their_best_texts_with_their_scores(learned: Path) -> None:
    model, tokenizer = load(learned)
    sources = tokenizer([source for source, _ in SENTENCES], return_tensors="pt", padding=True)
    search = {
        "num_beams": 4,
        "num_return_sequences": 3,
        "length_penalty": 0.0,
        "max_length": 30,
        "early_stopping": False,
    }
    found = model.generate(**sources, **search, return_dict_in_generate=True, output_scores=True)
    scores = found.sequences_scores.view(8, 3)
    assert (scores[:, :-1] >= scores[:, 1:]).all()
    assert tokenizer.batch_decode(found.sequences[::3], skip_special_tokens=True) == [text for _, text in SENTENCES]
    steps = model.compute_transition_scores(found.sequences, found.scores, found.beam_indices)
    torch.testing.assert_close(steps.sum(1), found.sequences_scores, rtol=1e-4, atol=1e-4)
    labels = found.sequences[:, 1:].masked_fill(found.sequences[:, 1:] == PAD, -100)
    with torch.no_grad():
        rows = {name: tensor.repeat_interleave(3, 0) for name, tensor in sources.items()}
        log_probs = model(**rows, labels=labels).logits.log_softmax(-1)
    words = log_probs.gather(2, labels.clamp(min=0)[..., None])[..., 0].masked_fill(labels == -100, 0)
    torch.testing.assert_close(words.sum(1), found.sequences_scores, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("search", [{"num_beams": 1}, {"num_beams": 3}, {"num_beams": 1, "do_sample": True}])
def test_least_and_greatest_lengths(search: dict[str, Any], learned: Path) -> None:
    model, tokenizer = load(learned)
    sources = tokenizer([source for source, _ in SENTENCES], return_tensors="pt", padding=True)
    torch.manual_seed(1)
    for least, most in ((25, 28), (26, 26)):
        tokens = model.generate(**sources, **search, min_length=least, max_length=most)
        lengths = (tokens != PAD).sum(1)
        assert ((lengths >= least) & (lengths <= most)).all()
        assert not (tokens[:, 1 : least - 1] == EOS).any()
        assert (tokens[:, 1:] < 4).sum() == (tokens[:, 1:] == EOS).sum() + (tokens[:, 1:] == PAD).sum()
    tokens = model.generate(**sources, **search, min_new_tokens=5, max_new_tokens=7)
    assert tokens.size(1) <= 8
    assert not (tokens[:, 1:5] == EOS).any()


def test_words_that_are_not_to_appear(learned: Path) -> None:
    model, tokenizer = load(learned)
    sources = tokenizer([source for source, _ in SENTENCES], return_tensors="pt", padding=True)
    usual = model.generate(**sources)
    word, pair = usual[0, 1].item(), usual[1, 1:3].tolist()
    tokens = model.generate(**sources, bad_words_ids=[[word], pair])
    assert (usual == word).any()
    assert not (tokens == word).any()
    assert not ((tokens[:, :-1] == pair[0]) & (tokens[:, 1:] == pair[1])).any()
    repeated = model.generate(**sources, min_length=20, no_repeat_ngram_size=1)
    assert all(len(set(row)) == len(row) for row in ([x for x in r if x > EOS] for r in repeated.tolist()))


def test_padding_is_read_by_no_attention(learned: Path) -> None:
    """Whether it is masked, only present in the batch, or known to the encoder alone."""
    model, tokenizer = load(learned)
    batch = batch_of(tokenizer)
    source, mask, labels = (batch[name] for name in ("input_ids", "attention_mask", "labels"))
    assert (source == PAD).any()
    encoded = model.get_encoder()(source)
    search = {"output_scores": True, "return_dict_in_generate": True, "num_beams": 3}
    with torch.no_grad():
        expected = model(source, attention_mask=mask, labels=labels).logits
        for given in (
            {"input_ids": source},
            {"input_ids": source, "attention_mask": torch.ones_like(source)},
            {"encoder_outputs": encoded},
        ):
            torch.testing.assert_close(model(**given, labels=labels).logits, expected)
    scores = model.generate(source, attention_mask=mask, **search).sequences_scores
    for given in (
        {"inputs": source},
        {"inputs": source, "attention_mask": torch.ones_like(source)},
        {"encoder_outputs": encoded},
    ):
        torch.testing.assert_close(model.generate(**given, **search).sequences_scores, scores)


def test_a_model_in_bfloat16(learned: Path, tmp_path: Path) -> None:
    expected, tokenizer = load(learned)
    with torch.no_grad():
        loss = expected(**batch_of(tokenizer)).loss
    for dtype in (torch.bfloat16, "bfloat16"):
        model, _ = load(learned, dtype=dtype)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
        with torch.no_grad():
            assert model(**batch_of(tokenizer)).loss.item() == pytest.approx(loss.item(), abs=0.05)
        assert translations(model, tokenizer) == [target for _, target in SENTENCES]
    model.save_pretrained(tmp_path)
    again = load(tmp_path, dtype="auto")[0]
    assert again.dtype == torch.bfloat16
    assert all(map(torch.equal, again.parameters(), model.parameters()))


@pytest.mark.parametrize("device_map", ["cpu", "auto", {"": "cpu"}], ids=str)
def test_devices_that_transformers_chooses(device_map: Any, learned: Path) -> None:
    model, tokenizer = load(learned, device_map=device_map)
    assert translations(model, tokenizer) == [target for _, target in SENTENCES]


def test_a_folder_saved_after_a_line_of_more_than_1024_tokens(learned: Path, tmp_path: Path) -> None:
    model, tokenizer = load(learned)
    source = tokenizer([" ".join(["dog"] * 1100)], return_tensors="pt")
    assert source["input_ids"].size(1) > 1024
    labels = source["input_ids"][:, :1030]
    with torch.no_grad():
        expected = model(**source, labels=labels).logits
        model.save_pretrained(tmp_path)
        again = load(tmp_path)[0]
        assert torch.equal(again(**source, labels=labels).logits, expected)
    assert {name: x.shape for name, x in again.state_dict().items()} == {
        name: x.shape for name, x in load(learned)[0].state_dict().items()
    }


def test_a_folder_of_an_earlier_version_stores_tables_of_positions(learned: Path, tmp_path: Path) -> None:
    model, tokenizer = load(learned)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tables = {f"model.{stack}.embed_positions.weights": torch.full((1103, 32), 9.0) for stack in ("encoder", "decoder")}
    save_file(load_file(file) | tables, file, {"format": "pt"})
    assert translations(load(tmp_path)[0], tokenizer) == [target for _, target in SENTENCES]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.update({"model.other": tensors.pop(NORM)}), f"has no {NORM}"),
        (lambda tensors: tensors[NORM].fill_(float("nan")), f"{NORM} holds NaN or infinity"),
    ],
    ids=["renamed", "nan"],
)
def test_a_folder_without_one_of_its_numbers(change: Any, message: str, learned: Path, tmp_path: Path) -> None:
    for file in learned.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=rf"model\.safetensors: {message}"):
        load(tmp_path)
