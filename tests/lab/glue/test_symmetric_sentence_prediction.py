"""Pairs in random order, for tasks whose pairs have none."""

from argparse import Namespace
from pathlib import Path

from fairseq.data import Dictionary, indexed_dataset
from fairseq.tasks.sentence_prediction import SentencePredictionTask

from ode_transformer.models.tasks import SymmetricSentencePredictionTask

PAIRS = [(f"a{number} " * (1 + number % 3), f"b{number}") for number in range(64)]


def write_data(folder: Path) -> Namespace:
    """Write the pairs, with their numbers as labels, as training data; return the task's options."""
    dictionary = Dictionary()
    for number in range(len(PAIRS)):
        dictionary.add_symbol(f"a{number}")
        dictionary.add_symbol(f"b{number}")
    for number, texts in enumerate(zip(*PAIRS, strict=True)):
        data = folder / f"input{number}"
        data.mkdir()
        dictionary.save(str(data / "dict.txt"))
        builder = indexed_dataset.make_builder(str(data / "train.bin"), "mmap", len(dictionary))
        for text in texts:
            builder.add_item(dictionary.encode_line(text, add_if_not_exist=False))
        builder.finalize(str(data / "train.idx"))
    (folder / "label").mkdir()
    (folder / "label" / "train.label").write_text("".join(f"{number}.0\n" for number in range(len(PAIRS))))
    options = {"num_classes": 1, "init_token": 0, "separator_token": None, "regression_target": True, "seed": 3}
    options |= {"shorten_method": "truncate", "shorten_data_split_list": "", "max_positions": 9, "no_shuffle": False}
    return Namespace(data=str(folder), d2v2_multi=False, add_prev_output_tokens=False, **options)


def texts(task: SentencePredictionTask, dataset) -> dict[float, str]:
    """Return the text of each example by its label."""
    samples = [dataset[index] for index in range(len(dataset))]
    return {sample["target"][0]: task.dictionary.string(sample["net_input.src_tokens"]) for sample in samples}


def test_training_pairs_are_in_either_order_and_drawn_anew_in_each_epoch(tmp_path: Path) -> None:
    task = SymmetricSentencePredictionTask.setup_task(write_data(tmp_path))
    dataset = task.load_dataset("train")
    epochs = []
    for epoch in (1, 2, 1):
        dataset.set_epoch(epoch)
        epochs.append(texts(task, dataset))
        swapped = 0
        for number, (first, second) in enumerate(PAIRS):
            text = epochs[-1][number].split()
            orders = [" ".join([*first.split(), second]).split(), [second, *first.split()]]
            words = [word for word in text if word[0] in "ab"]
            assert words in orders
            swapped += words == orders[1]
        assert 16 < swapped < 48  # half of 64, by four standard deviations
    assert epochs[0] == epochs[2] != epochs[1]
    batch = dataset.collater([dataset[0], dataset[1]])
    assert batch["net_input"]["src_tokens"].shape[0] == batch["nsentences"] == 2
