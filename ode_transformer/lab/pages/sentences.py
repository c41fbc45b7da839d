"""Sentences of a report: outputs of several systems side by side, edits of corrections, surprisal, attention."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ode_transformer.lab.analysis.examples import SystemOutputs, compare_sentences, most_different, read_outputs
from ode_transformer.lab.analysis.one_sentence import matrix_data
from ode_transformer.lab.metrics.max_match import MatchedSentence
from ode_transformer.lab.pages.measurements import Measurements
from ode_transformer.lab.pages.runs import Systems

SHORTEST_CHOSEN, LONGEST_CHOSEN = 5, 30  # words of a sentence that is chosen for attention and depth


def decoded_split(systems: Systems) -> str | None:
    """Return the first split that all systems with logs have decoded; None if there is none."""
    decoded = [[split for run in runs for split in run.decode_logs] for runs in systems.values()]
    first, *further = [splits for splits in decoded if splits] or [[]]
    return next((split for split in first if all(split in splits for splits in further)), None)


def read_system_outputs(systems: Systems, split: str) -> SystemOutputs | None:
    """Return the outputs of the first run of each system that decoded a split; None if there are none."""
    first_logs: dict[str, Path] = {}
    for run in (run for runs in systems.values() for run in runs if not run.is_language_model):
        if split in run.decode_logs:
            first_logs.setdefault(run.name, run.decode_logs[split])
    return read_outputs(first_logs, None, None) if first_logs else None


def chosen_numbers(outputs: SystemOutputs, metric: str, count: int, longest: int | None = None) -> list[int]:
    """Return the numbers of sentences to show: where systems differ most; of one system, evenly spread ones.

    :param longest: words of a source or reference, at most
    """
    texts = [text for text in (outputs.references, outputs.source) if text is not None]
    total, several = len(outputs.references), len(outputs.systems) > 1
    numbers: Sequence[int] = most_different(outputs, metric, total) if several else range(1, total + 1)
    if longest is not None:
        numbers = [n for n in numbers if all(SHORTEST_CHOSEN <= len(text[n - 1].split()) <= longest for text in texts)]
    if not several:
        numbers = numbers[:: max(1, len(numbers) // count)]
    return list(numbers[:count])


def compared_sentences(
    outputs: SystemOutputs, numbers: Sequence[int], metric: str, edits: Mapping[str, Sequence[MatchedSentence]]
) -> list[dict[str, Any]]:
    """Return ``compare_sentences``; lines of corrections have the edits, and the source with them as their words."""
    sentences = compare_sentences(outputs, numbers, metric)
    for sentence in sentences:
        for line in sentence["lines"]:
            line["edits"] = []
            if line["name"] in edits:
                matched = edits[line["name"]][sentence["number"] - 1]
                line |= {"pieces": edit_pieces(matched), "edits": edit_list(matched)}
    return sentences


def edit_pieces(matched: MatchedSentence) -> list[tuple[str, str]]:
    """Return the source with the system's edits: what each removed and what it wrote."""
    tokens, position = matched.source.tokens, 0
    pieces: list[tuple[str, Sequence[str]]] = []
    for edit in matched.edits:
        pieces += [("equal", tokens[position : edit.start]), ("missing", tokens[edit.start : edit.end])]
        pieces.append(("added", edit.correction))
        position = edit.end
    pieces.append(("equal", tokens[position:]))
    return [(kind, " ".join(words)) for kind, words in pieces if words]


def edit_list(matched: MatchedSentence) -> list[tuple[str, str]]:
    """Return the edits of a sentence, each with its judgement: right, wrong or missed."""
    tokens = matched.source.tokens

    def describe(start: int, end: int, correction: Sequence[str]) -> str:
        return f"{' '.join(tokens[start:end]) or '∅'} → {' '.join(correction) or '∅'}"

    edits = [
        ("right" if edit.correct else "wrong", describe(edit.start, edit.end, edit.correction))
        for edit in matched.edits
    ]
    correct_edits = [(edit.start, edit.end, edit.correction) for edit in matched.edits if edit.correct]
    for gold in matched.gold:
        changes = ((gold.start, gold.end, text) for text in gold.corrections)
        matching_edit = next((change for change in changes if change in correct_edits), None)
        if matching_edit is None:
            edits.append(("missed", describe(gold.start, gold.end, gold.corrections[0])))
        else:
            correct_edits.remove(matching_edit)  # two insertions can stand at one place
    return edits


def words_of(tokens: Sequence[str], bits: Sequence[float]) -> list[tuple[str, float]]:
    """Join the pieces of sentencepiece or subword-nmt to words; a word has the sum of its pieces' surprisals."""
    with_sentencepiece = any(token.startswith("▁") for token in tokens)
    words: list[tuple[str, float]] = []
    continues = False
    for token, value in zip(tokens, bits, strict=True):
        if with_sentencepiece:
            continues = bool(words) and not token.startswith("▁") and token != "</s>"
        text = token.removeprefix("▁").removesuffix("@@")
        if continues:
            words[-1] = words[-1][0] + text, words[-1][1] + value
        else:
            words.append((text, value))
        continues = token.endswith("@@")
    return words


def surprisal_rows(measured: Mapping[str, Measurements]) -> list[tuple[int, dict[str, list[tuple[str, float]]]]]:
    """Return the surprisal of each word of the chosen sentences: number of the sentence -> system -> words."""
    rows: dict[int, dict[str, list[tuple[str, float]]]] = {}
    for name, measurements in measured.items():
        for sentence in measurements.sentences:
            rows.setdefault(sentence.number, {})[name] = words_of(sentence.tokens["target"], sentence.bits)
    return list(rows.items())


def attention_section(measured: Mapping[str, Measurements]) -> dict[str, Any] | None:
    """Return the attention maps for the page; None if there are none.

    The page first shows the last map of the first sentence: of a translation model, the last layer's attention over the
    source.
    """
    sentences = [(name, sentence) for name, m in measured.items() for sentence in m.sentences if sentence.attention]
    if not sentences:
        return None
    first = sentences[0][1].attention[-1]
    entries = first.heads.mean(dim=0).tolist()
    data = [
        {"sentence": sentence.number, "system": name, **matrix_data(matrix)}
        for name, sentence in sentences
        for matrix in sentence.attention
    ]
    return {"first": first, "entries": entries, "most": max(map(max, entries)), "data": data}
