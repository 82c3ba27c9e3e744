"""Draws docs/architecture.svg from the imports of the code: `python docs/make_architecture.py`, or `make architecture`.

A room is a module or package directly in `isr_rag`; the laboratory is one room. An arrow leads from a room to one that
it imports. Arrows that follow from others are left out (the transitive reduction), as is `errors`, which everything
imports.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import grimp
import networkx as nx

DRAWING = Path(__file__).with_name("architecture.svg")
EVERYWHERE = "errors"
BOX_WIDTH, BOX_HEIGHT, COLUMN, ROW, MARGIN = 112, 30, 132, 72, 16
Node = Hashable


def rooms() -> nx.DiGraph[str]:
    """Imports between rooms, with those inside functions and without those for type checkers only."""
    code = grimp.build_graph("isr_rag", "isr_lab", exclude_type_checking_imports=True, cache_dir=None)
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module in code.modules:
        for imported in code.find_modules_directly_imported_by(module):
            room, other = _room(module), _room(imported)
            if room != other and "" not in (room, other):
                graph.add_edge(room, other)
    return graph


def _room(module: str) -> str:
    package, _, rest = module.partition(".")
    return package if package == "isr_lab" else rest.partition(".")[0]


def drawn(graph: nx.DiGraph[str]) -> nx.DiGraph[str]:
    """What the drawing shows of the imports.

    Raises:
        ValueError: if rooms import one another in a circle.
    """
    if not nx.is_directed_acyclic_graph(graph):
        raise ValueError(f"rooms import one another in a circle: {nx.find_cycle(graph)}")
    shown = graph.subgraph(sorted(set(graph) - {EVERYWHERE}))
    return nx.transitive_reduction(shown)


def layered(graph: nx.DiGraph[str]) -> tuple[list[list[Node]], nx.DiGraph[Node]]:
    """Layers from top to bottom, with a way point wherever an arrow crosses one."""
    depth = {room: 0 for room in graph}
    for room in reversed(list(nx.lexicographical_topological_sort(graph))):
        depth[room] = max((depth[other] + 1 for other in graph.successors(room)), default=0)
    top = max(depth.values())
    level = {room: top - deep for room, deep in depth.items()}
    routed: nx.DiGraph[Node] = nx.DiGraph()
    layers: list[list[Node]] = [[] for _ in range(top + 1)]
    for room in sorted(graph):
        routed.add_node(room)
        layers[level[room]].append(room)
    for room, other in sorted(graph.edges):
        last: Node = room
        for between in range(level[room] + 1, level[other]):
            point = (room, other, between)
            layers[between].append(point)
            routed.add_edge(last, point)
            last = point
        routed.add_edge(last, other)
    return layers, routed


def places(layers: Sequence[list[Node]], routed: nx.DiGraph[Node]) -> dict[Node, float]:
    """A column for every node: layers are sorted by the mean place of their neighbours, up and down in turns."""
    x = {node: index - len(layer) / 2 for layer in layers for index, node in enumerate(layer)}
    for turn in range(24):
        down = turn % 2 == 0
        for layer in layers if down else reversed(layers):
            near = {n: list(routed.predecessors(n) if down else routed.successors(n)) for n in layer}
            wish = {n: sum(x[o] for o in near[n]) / len(near[n]) if near[n] else x[n] for n in layer}
            order = sorted(layer, key=lambda node: (wish[node], str(node)))
            _spread(order, wish, x)
    least = min(x.values())
    return {node: place - least for node, place in x.items()}


def _spread(order: Sequence[Node], wish: Mapping[Node, float], x: dict[Node, float]) -> None:
    """As near to the wishes as the order and a distance of a column (half of one for way points) allow."""
    place = float("-inf")
    for index, node in enumerate(order):
        pair = isinstance(node, str) or (index > 0 and isinstance(order[index - 1], str))
        place = max(wish[node], place + (1.0 if pair else 0.4))
        x[node] = place
    shift = sum(x[node] - wish[node] for node in order) / len(order) if order else 0.0
    for node in order:
        x[node] = round(x[node] - shift, 4)


def svg(graph: nx.DiGraph[str]) -> str:
    """The drawing."""
    layers, routed = layered(graph)
    column = places(layers, routed)
    row = {node: index for index, layer in enumerate(layers) for node in layer}

    def centre(node: Node) -> tuple[float, float]:
        return MARGIN + BOX_WIDTH / 2 + column[node] * COLUMN, MARGIN + BOX_HEIGHT / 2 + row[node] * ROW

    width = 2 * MARGIN + BOX_WIDTH + max(column.values()) * COLUMN
    height = 2 * MARGIN + BOX_HEIGHT + (len(layers) - 1) * ROW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="sans-serif" font-size="13">',
        "<title>Rooms of isr_rag and what they import</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#6b7280"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    for start, end in sorted(routed.edges, key=str):
        (x0, y0), (x1, y1) = centre(start), centre(end)
        y0 += BOX_HEIGHT / 2 if isinstance(start, str) else 0
        y1 -= BOX_HEIGHT / 2 if isinstance(end, str) else 0
        middle = (y0 + y1) / 2
        head = ' marker-end="url(#head)"' if isinstance(end, str) else ""
        curve = f"M{x0:.0f} {y0:.0f} C{x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {y1:.0f}"
        lines.append(f'<path d="{curve}" fill="none" stroke="#6b7280"{head}/>')
    for room in sorted(graph):
        x, y = centre(room)
        fill = "#fef3c7" if room == "isr_lab" else "#dbeafe"
        lines.append(
            f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="5" fill="{fill}" stroke="#1f2937"/>'
            f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" fill="#111827">{escape(room)}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    DRAWING.write_text(svg(drawn(rooms())), "utf-8")
