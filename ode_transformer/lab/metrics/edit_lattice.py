"""The edits of a correction: the path through its edit lattice that agrees most with an annotator (MaxMatch).

Dahlmeier & Ng 2012, "Better evaluation for grammatical error correction", Section 3.

    lattice       vertex (i, j): i tokens of the source have become j tokens of the hypothesis. An edge deletes,
                  inserts, substitutes or keeps one token. The lattice has the edges of all cheapest paths from (0, 0)
                  to the end, where a substitution costs 1 or, in a second search, 2 like a deletion and an insertion
    edit          a path within the lattice that changes at least one token and keeps at most ``max_unchanged``
    correct edit  has the span of a gold edit and the tokens of one of its alternatives; each gold edit counts once,
                  and several insertions at one position match in the order of the annotation
    system edits  the edits on the path from (0, 0) to the end that has, in this order: most correct edits, fewest
                  edges outside them, fewest other edits

Dynamic programming over the vertices in their order finds the path. Merged edits are never listed: a path's
state says whether it is within an edit and how many tokens that edit has kept, so the time is proportional to the
lattice.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ode_transformer.lab.metrics.m2_file import Edit

Tokens = Sequence[str]
Vertex = tuple[int, int]

# The state of a path at a vertex: how many of the gold insertions at this position it has matched or skipped, and how
# many tokens the current edit has kept, or OUTSIDE of edits.
State = tuple[int, int]
OUTSIDE = -1

MAX_UNCHANGED = 2


@dataclass(frozen=True)
class SystemEdit:
    """Tokens ``start`` to ``end`` (exclusive) of the source became ``correction``."""

    start: int
    end: int
    correction: tuple[str, ...]
    correct: bool


class Path(NamedTuple):
    """A path to a vertex: its cost, its edits as (start, end, correct), and the start of the one that goes on."""

    cost: int
    edits: tuple[tuple[Vertex, Vertex, bool], ...] = ()
    edit_start: Vertex = (0, 0)


class EditLattice:
    """All cheapest paths from a source to a hypothesis, for substitutions that cost 1 and for those that cost 2.

    :ivar edges: the vertices in rising order, each with the vertices from which an edge leads to it
    """

    def __init__(self, source: Tokens, hypothesis: Tokens) -> None:
        self.source, self.hypothesis = tuple(source), tuple(hypothesis)
        self.end = len(source), len(hypothesis)
        edges: dict[Vertex, set[Vertex]] = {(0, 0): set(), self.end: set()}
        for substitution in (1, 2):
            costs = self._costs(substitution)
            to_visit, visited = [self.end], {self.end}
            while to_visit:
                i, j = vertex = to_visit.pop()
                diagonal = 0 if self.keeps((i - 1, j - 1), vertex) else substitution
                for previous, price in (((i - 1, j), 1), ((i, j - 1), 1), ((i - 1, j - 1), diagonal)):
                    if min(previous) >= 0 and costs[previous[0]][previous[1]] + price == costs[i][j]:
                        edges.setdefault(vertex, set()).add(previous)
                        if previous not in visited:
                            visited.add(previous)
                            to_visit.append(previous)
        self.edges = dict(sorted(edges.items()))

    def _costs(self, substitution: int) -> list[list[int]]:
        """Return costs[i][j], the least cost from i source to j hypothesis tokens; insertions and deletions cost 1."""
        costs = [list(range(len(self.hypothesis) + 1))]
        for i, old in enumerate(self.source, start=1):
            above, left = costs[-1], i
            row = [left]
            for j, new in enumerate(self.hypothesis):
                left = min(above[j + 1] + 1, left + 1, above[j] + (0 if old == new else substitution))
                row.append(left)
            costs.append(row)
        return costs

    def keeps(self, start: Vertex, end: Vertex) -> bool:
        """Return whether the edge between two vertices keeps a token."""
        (i, j), diagonal = start, (start[0] + 1, start[1] + 1)
        return end == diagonal and min(start) >= 0 and self.source[i] == self.hypothesis[j]

    def fewest_unchanged(self, start: Vertex, end: Vertex) -> int | None:
        """Return the least number of tokens that a path between two vertices keeps; None if there is no path."""
        fewest = {start: 0}
        for i in range(start[0], end[0] + 1):
            for j in range(start[1], end[1] + 1):
                vertex = i, j
                predecessors = self.edges.get(vertex, set()) & fewest.keys()
                if predecessors:
                    fewest[vertex] = min(fewest[previous] + self.keeps(previous, vertex) for previous in predecessors)
        return fewest.get(end)

    def edits(self, gold: Sequence[Edit], max_unchanged: int = MAX_UNCHANGED) -> list[SystemEdit]:
        """Return the system's edits that agree most with an annotator, from left to right.

        :param gold: the annotator's edits in the order of their spans
        """
        # Costs are whole numbers, in which a correct edit outweighs all edges, and an edge all edits.
        edge = sum(self.end) + 2
        match = edge**2
        arcs = self._correct_edits(gold, max_unchanged)
        best: dict[Vertex, dict[State, Path]] = {(0, 0): {(0, OUTSIDE): Path(0)}}
        for vertex, predecessors in self.edges.items():
            paths = best.setdefault(vertex, {})

            def offer(state: State, path: Path, paths: dict[State, Path] = paths) -> None:
                if state not in paths or path.cost < paths[state].cost:
                    paths[state] = path

            for previous in predecessors:
                keeps, same_position = self.keeps(previous, vertex), previous[0] == vertex[0]
                for (insertions, unchanged), (cost, edits, start) in best[previous].items():
                    insertions = insertions if same_position else 0
                    if not keeps and unchanged == OUTSIDE:
                        offer((insertions, 0), Path(cost + edge + 1, edits, previous))
                    elif not keeps or unchanged == OUTSIDE:
                        offer((insertions, unchanged), Path(cost + edge, edits, start))
                    elif unchanged < max_unchanged:
                        offer((insertions, unchanged + 1), Path(cost + edge, edits, start))
            for start, order in arcs[vertex]:
                for (insertions, unchanged), (cost, edits, _) in best[start].items():
                    if unchanged == OUTSIDE and (order is None or insertions <= order):
                        matched = 0 if order is None else order + 1
                        offer((matched, OUTSIDE), Path(cost - match, (*edits, (start, vertex, True))))
            for (insertions, unchanged), (cost, edits, start) in list(paths.items()):
                if unchanged != OUTSIDE:  # the edit ends
                    offer((insertions, OUTSIDE), Path(cost, (*edits, (start, vertex, False))))
        complete = [path for (_, unchanged), path in best[self.end].items() if unchanged == OUTSIDE]
        edits = min(complete, key=lambda path: path.cost).edits
        return [SystemEdit(i, k, self.hypothesis[j:m], correct) for (i, j), (k, m), correct in edits]

    def _correct_edits(
        self, gold: Sequence[Edit], max_unchanged: int
    ) -> defaultdict[Vertex, list[tuple[Vertex, int | None]]]:
        """Find the edits that equal a gold edit.

        :return: by the vertex where an edit ends, the vertex where it begins and, for an insertion, its number among
            the gold insertions at its position
        """
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
                        unchanged = self.fewest_unchanged(start, end)
                        if unchanged is not None and unchanged <= max_unchanged:
                            arcs[end].append((start, order))
        return arcs
