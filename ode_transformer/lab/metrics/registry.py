"""The metrics by name; a new metric is a new entry here."""

from ode_transformer.lab.metrics import error_rates
from ode_transformer.lab.metrics.error_types import errant_scores
from ode_transformer.lab.metrics.max_match import m2_scores
from ode_transformer.lab.metrics.metric import Metric
from ode_transformer.lab.metrics.perplexity import perplexity
from ode_transformer.lab.metrics.rouge import rouge
from ode_transformer.lab.metrics.translation_scores import bleu, bleu_statistics, chrf, chrf_statistics

METRICS: dict[str, Metric] = {
    "bleu": Metric(
        bleu,
        options=("more_references", "tokenize", "lowercase", "compound_split", "flavour", "detokenize"),
        statistics=bleu_statistics,
    ),
    "chrf": Metric(
        chrf,
        options=("more_references", "lowercase", "detokenize"),
        statistics=chrf_statistics,
    ),
    "per": Metric(error_rates.phoneme_error_rate, statistics=error_rates.phoneme_statistics),
    "wer": Metric(error_rates.word_error_rate, statistics=error_rates.word_statistics),
    "m2": Metric(m2_scores, needs=("hypotheses", "gold"), scores=3),
    "errant": Metric(errant_scores, needs=("hypotheses", "gold"), scores=None),
    "rouge": Metric(rouge, options=("sentences",), scores=3),
    "perplexity": Metric(perplexity, needs=("eval_lm_log",), options=("references", "pieces")),
}
