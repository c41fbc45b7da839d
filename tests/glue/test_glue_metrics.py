"""The metrics of GLUE on examples that can be worked out by hand."""

import pytest

from ode_transformer.glue.metrics import METRICS, evaluate

# true positives 3, false positives 1, false negatives 1, true negatives 3
PREDICTIONS, LABELS = list("11110000"), list("11100001")


def test_classes() -> None:
    measured = evaluate(["accuracy", "f1", "matthews"], PREDICTIONS, LABELS)
    assert measured == pytest.approx({"accuracy": 75.0, "f1": 75.0, "matthews": 100 * (9 - 1) / 16})


def test_f1_is_that_of_the_class_1() -> None:
    flipped = [["01"[value == "0"] for value in values] for values in (PREDICTIONS[:5], LABELS[:5])]
    assert METRICS["f1"](*flipped) == pytest.approx(100 * 2 / 3)  # 1 of 1 found, 1 of 2 right
    assert METRICS["f1"](["0", "0"], ["1", "0"]) == 0


def test_numbers() -> None:
    predictions, labels = [1.0, 2.0, 3.0, 10.0], [1.0, 2.0, 4.0, 3.0]
    # ranks 1 2 3 4 and 1 2 4 3: 1 − 6·2/(4·15)
    assert METRICS["spearman"](predictions, labels) == pytest.approx(80.0)
    # sums over the four: 4.5 + 1 − 1.5 + 3 of products, 50 and 5 of squares
    assert METRICS["pearson"](predictions, labels) == pytest.approx(100 * 7 / 250**0.5)


def test_a_constant_prediction_is_worth_nothing() -> None:
    assert evaluate(["pearson", "spearman"], [2.0, 2.0], [1.0, 3.0]) == {"pearson": 0, "spearman": 0}
    assert evaluate(["matthews"], ["1", "1"], ["1", "0"]) == {"matthews": 0}


def test_what_is_no_number_is_worth_the_least() -> None:
    assert evaluate(["pearson", "spearman"], [2.0, float("nan")], [1.0, 3.0]) == {"pearson": -100, "spearman": -100}
    assert evaluate(["accuracy", "f1", "matthews"], ["1", "nan"], ["1", "0"]) == {
        "accuracy": 0,
        "f1": 0,
        "matthews": -100,
    }


def test_as_many_predictions_as_labels() -> None:
    with pytest.raises(ValueError, match="1 predictions for 2 labels"):
        evaluate(["accuracy"], ["1"], ["1", "0"])
