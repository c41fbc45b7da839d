"""Batches that are read at once are those of fairseq."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import LanguagePairDataset, language_pair_dataset
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder, data_file_path, index_file_path
from torch.utils.data import DataLoader

from ode_transformer.models.model_from_options import numbered_dictionary
from ode_transformer.models.pair_batches import PairBatch


@pytest.fixture
def texts(tmp_path: Path) -> list[MMapIndexedDataset]:
    generator = torch.Generator().manual_seed(1)
    for name in ("source", "target"):
        builder = MMapIndexedDatasetBuilder(data_file_path(str(tmp_path / name)), np.uint16)
        for length in torch.randint(1, 9, (30,), generator=generator).tolist():
            builder.add_item(torch.cat([torch.randint(4, 20, (length,), generator=generator), torch.tensor([2])]))
        builder.finalize(index_file_path(str(tmp_path / name)))
    return [MMapIndexedDataset(str(tmp_path / name)) for name in ("source", "target")]


def flat(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.as_tensor(x) for name, x in (batch | batch["net_input"]).items() if name != "net_input"}


@pytest.mark.parametrize(
    "options", [{}, {"left_pad_source": False, "left_pad_target": True, "pad_to_multiple": 4, "src_lang_id": 7}]
)
def test_a_batch_is_that_of_fairseq(texts: list[MMapIndexedDataset], options: dict[str, Any]) -> None:
    words = numbered_dictionary(30)
    source, target = texts
    pairs = LanguagePairDataset(source, source.sizes, words, target, target.sizes, words, **options)
    batches = [np.array([7, 3, 29, 0]), np.array([5])]
    assert isinstance(pairs.__getitems__(batches[0]), PairBatch)
    for numbers, ours in zip(batches, DataLoader(pairs, batch_sampler=batches, collate_fn=pairs.collater), strict=True):
        torch.testing.assert_close(flat(ours), flat(pairs.collater([pairs[number] for number in numbers])))


def test_fairseq_copies_sentence_by_sentence(texts: list[MMapIndexedDataset], monkeypatch: pytest.MonkeyPatch) -> None:
    words, read = numbered_dictionary(30), []
    get_pair = LanguagePairDataset.__getitem__
    monkeypatch.setattr(LanguagePairDataset, "__getitem__", lambda *arguments: read.append(1) or get_pair(*arguments))
    pairs = LanguagePairDataset(texts[0], texts[0].sizes, words, texts[1], texts[1].sizes, words)

    def batch() -> dict[str, torch.Tensor]:
        return flat(next(iter(DataLoader(pairs, batch_sampler=[[4, 2, 9]], collate_fn=pairs.collater))))

    ours = batch()
    assert not read
    for owner, name in ((LanguagePairDataset, "__getitems__"), (language_pair_dataset, "collate")):
        monkeypatch.setattr(owner, name, getattr(owner, name).__wrapped__)
    torch.testing.assert_close(batch(), ours)
    assert len(read) == 3


def test_changed_pairs_are_read_by_fairseq(texts: list[MMapIndexedDataset]) -> None:
    words = numbered_dictionary(30)
    pairs = LanguagePairDataset(texts[0], texts[0].sizes, words, texts[1], texts[1].sizes, words, append_bos=True)
    (batch,) = DataLoader(pairs, batch_sampler=[[4, 2]], collate_fn=pairs.collater)
    assert batch["target"][:, 0].tolist() == [words.bos()] * 2
