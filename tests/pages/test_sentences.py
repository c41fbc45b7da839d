"""Words, edits and chosen sentences of a report."""

from pathlib import Path

import pytest

from ode_transformer.analysis.comparison.examples import SystemOutputs
from ode_transformer.analysis.one_sentence import readable_tokens
from ode_transformer.metrics.m2_file import AnnotatedSentence, Edit
from ode_transformer.metrics.max_match import max_match
from ode_transformer.metrics.metric import Score
from ode_transformer.pages.overview import bootstrap_results, operations_text
from ode_transformer.pages.runs import ReportedRun
from ode_transformer.pages.sentences import (
    chosen_numbers,
    compared_sentences,
    decoded_split,
    edit_list,
    edit_pieces,
    read_system_outputs,
    words_of,
)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["▁Un", "able", "▁to", "</s>"], [("Unable", 3.0), ("to", 4.0), ("</s>", 8.0)]),
        (["Un@@", "able", "to", "</s>"], [("Unable", 3.0), ("to", 4.0), ("</s>", 8.0)]),
        (["a", "b", "c", "</s>"], [("a", 1.0), ("b", 2.0), ("c", 4.0), ("</s>", 8.0)]),
    ],
)
def test_pieces_are_joined_to_words(tokens: list[str], words: list[tuple[str, float]]) -> None:
    assert words_of(tokens, [1.0, 2.0, 4.0, 8.0]) == words


def test_tokens_are_readable() -> None:
    assert readable_tokens(["▁Un", "able", "▁", ".", "</s>"]) == ["Un", "·able", "▁", ".", "</s>"]
    assert readable_tokens(["Un@@", "able"]) == ["Un@@", "able"]


def test_edits_of_a_correction_are_judged() -> None:
    gold = (Edit(1, 2, "V", (("goes",),)), Edit(4, 4, "P", ((".",),)))
    sentence = AnnotatedSentence(("He", "go", "to", "school"), {0: gold})
    (matched,) = max_match(["He goes to the school"], [sentence])
    assert edit_pieces(matched) == [
        *[("equal", "He"), ("missing", "go"), ("added", "goes"), ("equal", "to"), ("added", "the")],
        ("equal", "school"),
    ]
    assert edit_list(matched) == [("right", "go → goes"), ("wrong", "∅ → the"), ("missed", "∅ → .")]


def test_two_insertions_at_one_place_are_judged_one_by_one() -> None:
    gold = (Edit(1, 1, "P", (("x",),)), Edit(1, 1, "P", (("y",),)))
    (matched,) = max_match(["a x b"], [AnnotatedSentence(("a", "b"), {0: gold})])
    assert edit_list(matched) == [("right", "∅ → x"), ("missed", "∅ → y")]


OUTPUTS = SystemOutputs(
    ["one two three four five six", "short", "a b c d e f", "u v w x y z"],
    ["eins zwei drei vier fünf sechs", "kurz", "a b c d e f", "u v w x y z"],
    {
        "first": ["eins zwei drei vier fünf acht", "lang", "a b c d e f", "q"],
        "last": ["eins", "kurz", "a b c d e f", "u v w x y z"],
    },
)


def test_the_sentences_that_differ_most_come_first() -> None:
    assert chosen_numbers(OUTPUTS, "chrf", 3) == [2, 4, 1]
    assert chosen_numbers(OUTPUTS, "chrf", 3, longest=30) == [4, 1, 3]  # the short one is no sentence to look into
    single = SystemOutputs(OUTPUTS.source, OUTPUTS.references, {"first": OUTPUTS.systems["first"]})
    assert chosen_numbers(single, "chrf", 2) == [1, 3]
    (sentence,) = compared_sentences(OUTPUTS, [2], "chrf", {})
    assert [line.pieces for line in sentence.lines] == [[("missing", "kurz"), ("added", "lang")], [("equal", "kurz")]]


def test_a_system_shows_the_first_seed_that_decoded_the_split(tmp_path: Path) -> None:
    systems = {name: [ReportedRun(tmp_path / f"{name}{seed}", name) for seed in (1, 2)] for name in "ab"}
    for folder, split in (("a2", "test"), ("a2", "valid"), ("b1", "valid")):
        (tmp_path / folder).mkdir(exist_ok=True)
        log = f"T-0\tno\nH-0\t-0.1\t{folder}\nD-0\t-0.1\t{folder}\n"
        (tmp_path / folder / f"generate.{split}.log").write_text(log)
    assert decoded_split(systems) == "valid"
    outputs = read_system_outputs(systems, "valid")
    assert outputs is not None
    assert outputs.systems == {"a": ["a2"], "b": ["b1"]}
    assert decoded_split({"a": systems["a"][:1]}) is None


def test_operations_have_prefixes() -> None:
    assert [operations_text(n) for n in (950, 71_900_000, 4.35e12)] == ["950", "71.9 M", "4.35 T"]


def test_runs_without_recorded_commands_have_no_bootstrap_interval(tmp_path: Path) -> None:
    assert bootstrap_results({"a": [ReportedRun(tmp_path, "a")]}) == {}


def test_p_is_against_the_first_system_or_not_there(tmp_path: Path) -> None:
    def run(name: str) -> ReportedRun:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        words = {"a": "a b c d", "b": "a b c x", "c": "y b c x"}[name[0]]
        lines = "".join(f"T-{n}\ta b c d\nH-{n}\t-0.1\t{words}\nD-{n}\t-0.1\t{words}\n" for n in range(9))
        (folder / "generate.test.log").write_text(lines)
        command = ["ode-transformer", "score", "--metric", "bleu", "--generate-log", folder / "generate.test.log"]
        score = {"split": "test", "titles": ["BLEU"], "command": [*map(str, command), "--json"]}
        return ReportedRun(folder, name, experiment={"scores": [score]}, scores={"BLEU": Score("BLEU", 1.0, "", "", 9)})

    def p_values(systems: dict[str, list[ReportedRun]]) -> list[bool]:
        return [result.difference is not None for result in bootstrap_results(systems).values()]

    b, c = [run("b")], [run("c")]
    assert p_values({"a": [run("a")], "b": b, "c": c}) == [False, True, True]
    assert p_values({"a": [run("a1"), run("a2")], "b": b, "c": c}) == [False, False]
    command = b[0].experiment["scores"][0]["command"]
    command += ["--references", "gone/test.de"]  # of a corpus that was not copied with the run
    assert p_values({"b": b}) == []
