"""Layer history: the input of each layer is a combination of all earlier states (DLCL, Wang et al. 2019).

    x_n = Σ_{i ≤ n} W[n, i] s_i,   s_0 = y_0,   s_i = LN_i(y_i),   y_{n+1} = step(x_n)

Post-norm stacks normalise the sum instead: s_i = y_i, and x_n = LN_n(Σ …) for n ≥ 1. ``dlcl`` learns W, which starts at
the mean; ``dense`` keeps the mean. (The row "DLCL" of ODE Transformer's Table 7, y_0 + Σ W_l F(y_l), sums increments
and is another scheme.)
"""

from collections.abc import Sequence

from torch import Tensor, nn

from ode_transformer.numerics import Scheme, Weight, mean_weights, weighted_sum


class LayerHistory(nn.Module):
    """Combination of earlier states; called after each layer with the states so far.

    :param scheme: steps the layers; here only because checkpoints name its parameters so
    :param layers: L
    :param learned: True for DLCL: (L + 1)² weights, of which the lower triangle is used, as in the released code
    :param normalize_before: the layers are pre-norm
    """

    def __init__(self, scheme: Scheme, layers: int, dim: int, learned: bool, normalize_before: bool = True) -> None:
        super().__init__()
        self.scheme = scheme
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.weight = nn.Parameter(mean_weights(layers)) if learned else None
        self.normalize_before = normalize_before

    def forward(self, y: Tensor, states: Sequence[Tensor] = ()) -> tuple[Tensor, Sequence[Tensor]]:
        """Return x_n and s_0 … s_n.

        :param y: y_n, [.., dim]
        :param states: s_0 … s_{n−1}
        """
        n = len(states)
        states = [*states, self.norms[n - 1](y) if n and self.normalize_before else y]
        x = weighted_sum(self.weights(n), states)
        return x if self.normalize_before or not n else self.norms[n - 1](x), states

    def weights(self, depth: int) -> Sequence[Weight]:
        """Return W[depth, 0 … depth]."""
        return [1 / (depth + 1)] * (depth + 1) if self.weight is None else self.weight[depth, : depth + 1].unbind()
