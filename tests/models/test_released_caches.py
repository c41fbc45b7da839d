"""Decoding a predictor–corrector scheme by the released code's rule for caches differs from the full pass.

IIET's released code keeps one cache for all evaluations of a layer: only the last one adds its keys and values; the
others read those of earlier positions, and the fast attention leaves out the current position.
"""

import pytest
import torch
from batches import batch
from models_for_tests import beam_rows, check_search, small_model

from ode_transformer.nn import Context, KeyValueCache


class ReadOnlyCache(KeyValueCache):
    """Cache of an evaluation that is not the last: reads another cache and adds nothing to it."""

    def __init__(self, source: KeyValueCache, with_current: bool) -> None:
        super().__init__()
        self.source, self.with_current = source, with_current

    def write(self, added: torch.Tensor) -> None:
        earlier = self.source.positions[: self.source.length]
        if not self.source.length:
            earlier = added
        elif self.with_current:
            earlier = torch.cat([earlier, added])
        self.positions, self.length = earlier.contiguous(), len(earlier)


@pytest.mark.parametrize("with_current", [False, True])
@pytest.mark.parametrize("arch", ["ode_transformer_lm_iiet", "ode_transformer_lm_pcformer"])
def test_one_cache_for_all_evaluations_is_wrong(arch: str, with_current: bool, monkeypatch) -> None:
    model = small_model(arch=arch, max_relative_positions=0)
    own_cache, last = Context.self_cache, model.decoder.choice.stages - 1

    def released_cache(context: Context, name: str) -> KeyValueCache | None:
        if context.caches is None:
            return None
        sublayer, _, stage = name.rpartition(".")
        shared = own_cache(context, f"{sublayer}.{last}")
        return shared if int(stage) == last else ReadOnlyCache(shared, with_current)

    def search() -> None:
        check_search(model, batch([4, 4, 4]), beam_rows(torch.Generator().manual_seed(5)), steps=4)

    search()
    monkeypatch.setattr(Context, "self_cache", released_cache)
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        search()
