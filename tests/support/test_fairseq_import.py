"""fairseq is imported without scikit-learn, which is there where a score needs it, and without a look for garbage."""

import subprocess
import sys

SCRIPT = """
import gc, sys
from ode_transformer.decoding.translate import import_fairseq
assert not {"torch", "numpy"} & set(sys.modules)
collections = []
gc.callbacks.append(lambda phase, facts: collections.append(phase))
import_fairseq()
assert not collections and gc.isenabled() and gc.get_freeze_count() > 100_000, (len(collections), gc.get_freeze_count())
assert "sklearn" not in sys.modules and "scipy.stats" not in sys.modules
from fairseq.criterions.sentence_prediction import acc_and_f1, pearson_and_spearman
from fairseq.tasks import audio_classification
import numpy
ones = numpy.array([1, 0, 1, 1])
print(acc_and_f1(ones, ones)["f1"], round(pearson_and_spearman(ones, 2 * ones)["pearson"], 6))
print(len(audio_classification.sklearn_metrics.roc_curve(ones, ones)))
import scipy.stats, sklearn.metrics
print(scipy.stats.norm.cdf(0), sklearn.metrics.f1_score(ones, ones))
"""


def test_scores_that_need_postponed_libraries() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1.0", "1.0", "3", "0.5", "1.0"]
