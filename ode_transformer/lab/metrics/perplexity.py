"""Word perplexity of a language model, from a log of ``fairseq-eval-lm``.

    perplexity = 2^loss,   loss = −(1/N) Σ log₂ p(token | tokens before it)

The sum goes over all tokens of the binarised data, N of them: each word, and the end of each sentence, which
fairseq-preprocess appends and the model has to predict. The log gives N, but not whether a token was a word; with the
text as reference, N is compared with its number of words and lines. The context of a token depends on how the text was
cut into samples, so these settings are part of the signature.

Of a model that reads pieces, the sum over all pieces divided by the number of words and ends of sentence of the text
gives the perplexity of a word (``Settings.pieces``), which is comparable between vocabularies.
"""

import re

from ode_transformer.lab.metrics.metric import Lines, Score, Settings
from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import read_lines

_NUMBER = r"(\d+(?:\.\d+)?)"
_RESULT = re.compile(rf"Loss \(base 2\): {_NUMBER}, Perplexity: {_NUMBER}")
_TOKENS = re.compile(r"Evaluated ([\d,]{1,20}) tokens in ")
_SKIPPED = re.compile(r"([\d,]{1,20}) samples have invalid sizes and will be skipped")
# Settings in the configuration, which fairseq prints first
_NEEDED_FOR_PIECES = {"post_process": "None", "add_bos_token": "False"}  # with these alone N is the divisor of the loss
_SAMPLES = ("sample_break_mode", "tokens_per_sample", "context_window", "post_process")


def perplexity(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Return the perplexity at the end of the log; hypotheses are ignored.

    :raises UserError: the log is not one complete run over all tokens, or belongs to another text than the references
    """
    path = settings.eval_lm_log
    assert path is not None
    log = "\n".join(read_lines(path))
    results, counts = _RESULT.findall(log), _TOKENS.findall(log)
    if len(results) != 1 or not counts:
        raise UserError(f"{path}: not the complete log of one fairseq-eval-lm with a finite loss")
    loss, value = map(float, results[0])
    if settings.pieces and settings.references is None:
        raise UserError("--pieces needs --references, the text whose words are counted")
    for name, needed in _NEEDED_FOR_PIECES.items() if settings.pieces else ():
        if (setting := _setting(log, name)) not in (None, needed):
            flag = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{path}: {flag} {setting}: its loss is no mean over pieces; run fairseq-eval-lm without it"
            )
    tokens, unit, eos = int(counts[0].replace(",", "")), "token", ""
    skipped = _SKIPPED.search(log)
    if skipped or not tokens:
        missing = f"{skipped[1]} samples" if skipped else "all tokens"
        raise UserError(
            f"{path}: {missing} were not scored, in samples longer than the model takes: run fairseq-eval-lm with a "
            "smaller --tokens-per-sample and --sample-break-mode none"
        )
    if settings.references is not None:
        expected = sum(len(line.split()) + 1 for line in settings.references)
        if tokens < expected or (tokens > expected and not settings.pieces):
            raise UserError(
                f"{path}: {tokens:,} tokens, but --references has {expected:,} words and ends of sentence:"
                " was it another text, divided into pieces, or were lines left out?"
            )
        if settings.pieces:
            loss *= tokens / expected
            value, tokens = 2**loss, expected
        unit, eos = "word", f"|eos:counted{'|pieces' if settings.pieces else ''}"
    settings_of_samples = {name.replace("_", "-"): _setting(log, name) for name in _SAMPLES}
    samples = "".join(f"|{name}:{text}" for name, text in settings_of_samples.items() if text not in (None, "None"))
    detail = f"{loss:.4f} bits a {unit}, {tokens:,} {unit}s" + (" with the ends of sentence" if eos else "")
    lines = None if settings.references is None else len(settings.references)
    return [Score("perplexity", value, f"per:{unit}{eos}{samples}", detail, lines)]


def _setting(log: str, name: str) -> str | None:
    """Return a setting of the configuration in a log; None if it has none."""
    setting = re.search(rf"'{name}': '?([^',}}]+)", log)
    return setting[1] if setting else None
