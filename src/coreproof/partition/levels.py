"""Group the nodes that can run on Core ML into as few delegates as possible.

A delegate runs as one step, so no path may leave it and come back. Number every
node by how often the longest path to it crosses from the CPU into Core ML; the
Core ML nodes of one number form one delegate. A path never goes from a higher
number to a lower one and changes number when it comes back from the CPU, so the
groups are free of cycles; their count is the length of the longest alternation,
and no grouping can have fewer. Cost: one walk forward, one back.
"""

from __future__ import annotations

from torch.fx import Graph, Node


def levels(graph: Graph, on_coreml: set[Node], floating: set[Node]) -> dict[Node, int]:
    """The delegate's number for each node in `on_coreml`, counted from 0 in the order in which they run.

    Args:
        graph: in topological order.
        on_coreml: nodes that run on Core ML; a getitem must be in it with its producer.
        floating: nodes that may run as late as their first user (constants and sizes, which are best
            computed where they are used).
    """
    level: dict[Node, int] = {}
    for node in graph.nodes:
        above = [
            level[i] + (node in on_coreml and i not in on_coreml and i.op == "call_function")
            for i in node.all_input_nodes
        ]
        level[node] = max(above, default=0)
    for node in reversed(list(graph.nodes)):
        if node in on_coreml and node in floating and node.users:
            level[node] = min(level[user] for user in node.users)
    numbered = {node: level[node] for node in graph.nodes if node in on_coreml}
    _join_later(numbered)
    return _consecutive(numbered)


def _join_later(level: dict[Node, int]) -> None:
    """Let a delegate that only later delegates read join the first of them (a second input's first layer, often)."""
    groups: dict[int, list[Node]] = {}
    for node, number in level.items():
        groups.setdefault(number, []).append(node)
    for number in sorted(groups):
        users = {user for node in groups[number] for user in node.users if level.get(user) != number}
        if users and all(user in level for user in users):
            first = min(level[user] for user in users)
            level.update(dict.fromkeys(groups[number], first))
            groups[first] += groups[number]


def _consecutive(level: dict[Node, int]) -> dict[Node, int]:
    """The same order of levels, numbered without gaps."""
    number = {old: new for new, old in enumerate(sorted(set(level.values())))}
    return {node: number[old] for node, old in level.items()}
