"""A folder of CTranslate2 translates as the checkpoint does, and what CTranslate2 cannot express is refused."""

from pathlib import Path

import ctranslate2
import pytest
from checkpoint_for_tests import make_model
from commands_for_tests import PAIRS

from ode_transformer.cli.command import main
from ode_transformer.decoding.translate import load_hub, search_best

REPEATED = ("--encoder-ode-scheme", "repeat4", "--decoder-ode-scheme", "repeat", "--ode-coefficients", "tableau")
ONES = ("--ode-coefficients", "ones", "--encoder-layer-history", "none", "--decoder-layer-history", "none")
LONGEST = 12
SOURCES = [source for source, _ in PAIRS]


def export(model: Path, output: Path, *options: object) -> int:
    words = ("export", "--to", "ctranslate2", "--path", model, "--output", output, *options)
    return main([str(word) for word in words])


@pytest.mark.parametrize(
    "flags",
    [
        ("--relative-values",),
        (*REPEATED, "--ode-stage-parameters", "separate"),
        ("--max-relative-positions", 0, "--encoder-learned-pos", "--activation-fn", "gelu", "--layernorm-embedding"),
        ("--no-token-positional-embeddings", "--ode-middle-layers", 1, "--share-all-embeddings"),
        (
            "--encoder-ode-scheme",
            "euler",
            "--ode-coefficients",
            "tableau",
            "--ode-function-scope",
            "san",
            "--no-scale-embedding",
        ),
    ],
)
def test_tokens_are_those_of_the_checkpoint(flags: tuple[object, ...], tmp_path: Path) -> None:
    model = make_model(tmp_path, *ONES, *flags)
    assert export(model, tmp_path / "folder") == 0
    hub = load_hub(model, tmp_path, None, None, batch_size=32, cpu=True)
    numbers = [hub.task.source_dictionary.encode_line(line, add_if_not_exist=False).long() for line in SOURCES]
    pieces = [hub.task.source_dictionary.string(line).split() for line in numbers]
    expected = [hub.string(tokens).split() for tokens in search_best(hub, numbers, beam=1, max_len_b=LONGEST)]
    translator = ctranslate2.Translator(str(tmp_path / "folder"), device="cpu", intra_threads=1)
    results = translator.translate_batch(
        pieces, beam_size=1, max_decoding_length=LONGEST, suppress_sequences=[["<pad>"]]
    )
    assert [result.hypotheses[0] for result in results] == expected
    assert len({tuple(line) for line in expected}) > 5
