"""The edits of a correction: the path through its edit lattice that agrees most with an annotator (MaxMatch).

Dahlmeier & Ng 2012, "Better evaluation for grammatical error correction", Section 3.

    lattice       vertex (i, j): i tokens of the source have become j tokens of the hypothesis. An edge deletes,
                  inserts, substitutes or keeps one token. There are those edges that lie on a cheapest path from
                  (0, 0) to the end, where a substitution costs 1, or where it costs 2 like a deletion and an insertion
    edit          a path within the lattice that changes at least one token and keeps at most ``max_unchanged``
    correct edit  the same span and the same tokens as a gold edit by one of its alternatives; each gold edit counts
                  once, and several insertions at one place match in the order of the annotation
    system edits  of the path from (0, 0) to the end that has, in this order: most correct edits, fewest edges outside
                  them, fewest other edits

The path is found by dynamic programming over the vertices in their order. Merged edits are never listed: being within
an edit, and how many tokens it has kept, is part of the state, so that the time is proportional to the lattice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ode_transformer.metrics.m2_file import Edit

Tokens = Sequence[str]
Vertex = tuple[int, int]

# Where a path is at a vertex: how many of the gold insertions at this place are matched or passed over, and how many
# tokens the edit that is going on has kept, or OUTSIDE of edits.
State = tuple[int, int]
OUTSIDE = -1
Reached = dict[State, tuple[int, "tuple[Vertex, State] | None"]]  # state: its cost, and vertex and state before it

MAX_UNCHANGED = 2


@dataclass(frozen=True)
class SystemEdit:
    """Tokens ``start`` to ``end`` (exclusive) of the source became ``correction``."""

    start: int
    end: int
    correction: tuple[str, ...]
    correct: bool

    def __str__(self) -> str:
        return f"{self.start}-{self.end} {' '.join(self.correction) or '(nothing)'}"


class EditLattice:
    """All cheapest ways from a source to a hypothesis, with substitutions at the price of one edit and at that of two.

    :ivar edges: vertices in rising order, each with those from which an edge leads to it
    """

    def __init__(self, source: Tokens, hypothesis: Tokens) -> None:
        self.source, self.hypothesis = tuple(source), tuple(hypothesis)
        self.end = len(source), len(hypothesis)
        edges: dict[Vertex, set[Vertex]] = {(0, 0): set(), self.end: set()}
        for substitution in (1, 2):
            costs = self._costs(substitution)
            to_visit, seen = [self.end], {self.end}
            while to_visit:
                i, j = vertex = to_visit.pop()
                diagonal = 0 if self.keeps((i - 1, j - 1), vertex) else substitution
                for before, price in (((i - 1, j), 1), ((i, j - 1), 1), ((i - 1, j - 1), diagonal)):
                    if min(before) >= 0 and costs[before[0]][before[1]] + price == costs[i][j]:
                        edges.setdefault(vertex, set()).add(before)
                        if before not in seen:
                            seen.add(before)
                            to_visit.append(before)
        self.edges = dict(sorted(edges.items()))

    def _costs(self, substitution: int) -> list[list[int]]:
        """costs[i][j]: the least from the first i tokens to the first j, where an insertion or deletion costs 1."""
        costs = [list(range(len(self.hypothesis) + 1))]
        for i, old in enumerate(self.source, start=1):
            above, left = costs[-1], i
            row = [left]
            for j, new in enumerate(self.hypothesis):
                left = min(above[j + 1] + 1, left + 1, above[j] + (0 if old == new else substitution))
                row.append(left)
            costs.append(row)
        return costs

    def keeps(self, before: Vertex, after: Vertex) -> bool:
        """Whether the edge between two vertices keeps a token."""
        (i, j), diagonal = before, (before[0] + 1, before[1] + 1)
        return after == diagonal and min(before) >= 0 and self.source[i] == self.hypothesis[j]

    def fewest_kept(self, start: Vertex, end: Vertex) -> int | None:
        """How many tokens a path between two vertices keeps at least; None if there is no path."""
        fewest = {start: 0}
        for i in range(start[0], end[0] + 1):
            for j in range(start[1], end[1] + 1):
                vertex = i, j
                near = self.edges.get(vertex, set()) & fewest.keys()
                if near:
                    fewest[vertex] = min(fewest[before] + self.keeps(before, vertex) for before in near)
        return fewest.get(end)

    def edits(self, gold: Sequence[Edit], max_unchanged: int = MAX_UNCHANGED) -> list[SystemEdit]:
        """The system's edits, from left to right, for an annotator.

        :param gold: the annotator's edits in the order of their spans
        """
        # Costs are whole numbers, in which a correct edit outweighs all edges, and an edge all edits.
        edge = sum(self.end) + 2
        match = edge**2
        arcs = self._correct_edits(gold, max_unchanged)
        best: dict[Vertex, Reached] = {(0, 0): {(0, OUTSIDE): (0, None)}}
        for vertex, predecessors in self.edges.items():
            here = best.setdefault(vertex, {})

            def offer(state: State, cost: int, step: tuple[Vertex, State], here: Reached = here) -> None:
                if state not in here or cost < here[state][0]:
                    here[state] = cost, step

            for before in predecessors:
                kept, same_place = self.keeps(before, vertex), before[0] == vertex[0]
                for state, (cost, _) in best[before].items():
                    passed, unchanged = state[0] if same_place else 0, state[1]
                    if not kept:  # goes on with an edit or begins one
                        begins = unchanged == OUTSIDE
                        offer((passed, 0 if begins else unchanged), cost + edge + begins, (before, state))
                    elif unchanged == OUTSIDE:
                        offer((passed, OUTSIDE), cost + edge, (before, state))
                    elif unchanged < max_unchanged:
                        offer((passed, unchanged + 1), cost + edge, (before, state))
            for before, order in arcs[vertex]:
                for state, (cost, _) in best[before].items():
                    if state[1] == OUTSIDE and (order is None or state[0] <= order):
                        offer((0 if order is None else order + 1, OUTSIDE), cost - match, (before, state))
            for state, (cost, _) in list(here.items()):
                if state[1] != OUTSIDE:  # the edit ends
                    offer((state[0], OUTSIDE), cost, (vertex, state))
        return self._traced(best)

    def _correct_edits(
        self, gold: Sequence[Edit], max_unchanged: int
    ) -> defaultdict[Vertex, list[tuple[Vertex, int | None]]]:
        """The edits that are gold edits, by the vertex where they end: the vertex where they begin, and an insertion's
        number among the gold insertions at its place."""
        arcs: defaultdict[Vertex, list[tuple[Vertex, int | None]]] = defaultdict(list)
        insertions: defaultdict[int, int] = defaultdict(int)
        for edit in gold:
            order = None
            if edit.start == edit.end:
                order = insertions[edit.start]
                insertions[edit.start] += 1
            for correction in edit.corrections:
                if correction == self.source[edit.start : edit.end]:
                    continue
                for j in range(len(self.hypothesis) - len(correction) + 1):
                    start, end = (edit.start, j), (edit.end, j + len(correction))
                    if start in self.edges and end in self.edges and self.hypothesis[j : end[1]] == correction:
                        kept = self.fewest_kept(start, end)
                        if kept is not None and kept <= max_unchanged:
                            arcs[end].append((start, order))
        return arcs

    def _traced(self, best: dict[Vertex, Reached]) -> list[SystemEdit]:
        """The edits of the cheapest path, from its end back to its start."""
        final = {state: cost for state, (cost, _) in best[self.end].items() if state[1] == OUTSIDE}
        vertex, state = self.end, min(final, key=lambda state: final[state])
        edits = []
        stop = self.end  # where the edit that is going on ends
        while (step := best[vertex][state][1]) is not None:
            before, (_, unchanged) = step
            if before == vertex:
                stop = vertex
            elif unchanged == OUTSIDE != state[1]:
                edits.append(self._edit(before, stop, correct=False))
            elif unchanged == OUTSIDE and not self.keeps(before, vertex):
                edits.append(self._edit(before, vertex, correct=True))
            vertex, state = step
        return edits[::-1]

    def _edit(self, start: Vertex, end: Vertex, correct: bool) -> SystemEdit:
        return SystemEdit(start[0], end[0], self.hypothesis[start[1] : end[1]], correct)
