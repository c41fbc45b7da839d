"""fairseq-generate and fairseq-interactive, against whole passes of the model in Python."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from commands_for_tests import PAIRS, USER_DIR, Text, lines_of, succeed
from fairseq.checkpoint_utils import load_model_ensemble_and_task

import ode_transformer.models  # noqa: F401  (registers the architectures)

pytestmark = pytest.mark.slow

SHORT = ("--max-len-a", 0, "--max-len-b", 20)


@pytest.fixture(params=["rk2", "reformer_fast", "reformer_base"])
def checkpoint(request: pytest.FixtureRequest, learned: Callable[[str], Path]) -> Path:
    return learned(request.param)


def generate(text: Text, path: object, *options: object) -> str:
    # Three sentences in a batch, so that there is padding.
    common = ("--user-dir", USER_DIR, "--cpu", "--batch-size", 3, "--required-batch-size-multiple", 1)
    return succeed("generate", text.data, *common, "--path", path, *SHORT, *options)


class WholePass:
    """Scores a target at once, by the mean of the models' probabilities: no search, no cache."""

    def __init__(self, text: Text, *checkpoints: Path) -> None:
        models, _, task = load_model_ensemble_and_task([str(path) for path in checkpoints], {"data": str(text.data)})
        self.models = [model.eval() for model in models]
        self.dictionary = task.target_dictionary

    def encode(self, pieces: str) -> torch.Tensor:
        return self.dictionary.encode_line(pieces, add_if_not_exist=False).long()

    @torch.no_grad()
    def log_probabilities(self, source: str, target: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Base 2 as fairseq prints them: of every symbol at every position [T, V], and of the target [T]."""
        src, tgt = self.encode(source)[None], self.encode(target)
        outputs = [model(src, torch.tensor([src.size(1)]), tgt.roll(1)[None])[0][0] for model in self.models]
        everything = torch.stack([output.softmax(-1) for output in outputs]).mean(0).log2()
        return everything, everything.gather(1, tgt[:, None])[:, 0]


def assert_scores_are_those_of_whole_passes(output: str, model: WholePass) -> None:
    sources, found, scores = (lines_of(output, kind) for kind in "SHP")
    assert len(found) == 8
    for number, (score, translation) in found.items():
        _, expected = model.log_probabilities(sources[number][0], translation)
        printed = torch.tensor([float(word) for word in scores[number][0].split()])
        torch.testing.assert_close(printed, expected, atol=1e-4, rtol=0)
        assert abs(float(score) - expected.mean().item()) < 1e-4


def test_beam_search_reports_the_scores_of_whole_passes(text: Text, checkpoint: Path) -> None:
    output = generate(text, checkpoint, "--beam", 5)
    assert_scores_are_those_of_whole_passes(output, WholePass(text, checkpoint))
    assert len({fields[1] for fields in lines_of(output, "H").values()}) > 1


@pytest.mark.parametrize("names", [("rk2",), ("reformer_fast",), ("reformer_fast", "reformer_base")], ids="+".join)
def test_beam_search_finds_what_a_search_without_caches_finds(
    text: Text, learned: Callable[[str], Path], names: tuple[str, ...]
) -> None:
    models, args, task = load_model_ensemble_and_task([str(learned(name)) for name in names], {"data": str(text.data)})
    task.load_dataset("test")
    dataset = task.dataset("test")
    sample = dataset.collater([dataset[number] for number in range(len(dataset))])
    args.generation.beam, args.generation.max_len_b = 5, 20
    found = []
    for cached in (True, False):
        generator = task.build_generator(models, args.generation)
        generator.model.has_incremental = cached
        found.append(task.inference_step(generator, models, sample))
    for ours, others in zip(*found, strict=True):
        assert [h["tokens"].tolist() for h in ours] == [h["tokens"].tolist() for h in others]
        torch.testing.assert_close([h["score"] for h in ours], [h["score"] for h in others], atol=1e-4, rtol=0)


TYPED: Sequence[str] = (PAIRS[0][0], "", "The dog reads a book in Zürich ☃.", PAIRS[3][0])


def interactive(text: Text, path: Path) -> str:
    common = ("--user-dir", USER_DIR, "--cpu", "--path", path, "--beam", 5)
    pieces = ("--bpe", "sentencepiece", "--sentencepiece-model", text.pieces)
    return succeed("interactive", text.data, *common, *pieces, *SHORT, stdin="".join(f"{line}\n" for line in TYPED))


def test_what_is_typed_is_translated_line_by_line_here_and_from_python(text: Text, trained: Path) -> None:
    from ode_transformer.models import ODETransformerModel

    output = interactive(text, trained / "checkpoint_last.pt")
    translations = [fields[1] for _, fields in sorted(lines_of(output, "D").items())]
    assert len(lines_of(output, "H")) == len(translations) == len(TYPED)
    model = ODETransformerModel.from_pretrained(
        str(trained),
        "checkpoint_last.pt",
        data_name_or_path=str(text.data),
        bpe="sentencepiece",
        sentencepiece_model=str(text.pieces),
    )
    assert model.translate(list(TYPED), max_len_b=20) == translations
    assert model.translate(TYPED[0], max_len_b=20) == translations[0]
