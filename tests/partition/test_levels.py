"""Grouping into delegates: as few as the longest alternation, never a cycle."""

import random

import pytest
from torch.fx import Graph

from coreproof.partition.levels import levels


def graph(edges: list[list[int]]):
    """A graph of `len(edges)` nodes after one input; node n reads the nodes in `edges[n]`, or the input."""
    made = Graph()
    source = made.placeholder("x")
    nodes = []
    for operands in edges:
        nodes.append(made.call_function(max, tuple(nodes[i] for i in operands) or (source,)))
    made.output(tuple(node for node in nodes if not node.users))
    return made, nodes


def test_a_chain_without_cpu_ops_is_one_delegate():
    made, nodes = graph([[], [0], [1]])
    assert levels(made, set(nodes), set()) == dict.fromkeys(nodes, 0)


def test_a_cpu_op_splits():
    made, nodes = graph([[], [0], [1]])
    assert levels(made, {nodes[0], nodes[2]}, set()) == {nodes[0]: 0, nodes[2]: 1}


def test_branches_around_a_cpu_op_join_one_delegate():
    # 0 -> cpu 1 -> 3 and 2 (independent): 2 goes with 0, no third delegate
    made, nodes = graph([[], [0], [], [1, 2]])
    assert levels(made, {nodes[0], nodes[2], nodes[3]}, set()) == {nodes[0]: 0, nodes[2]: 0, nodes[3]: 1}


def test_a_delegate_that_only_a_later_one_reads_joins_it():
    # cpu 0 -> 1; 2 reads the input; 3 joins both: 2 need not be a delegate of its own
    made, nodes = graph([[], [0], [], [1, 2]])
    on_coreml = {nodes[1], nodes[2], nodes[3]}
    assert levels(made, on_coreml, set()) == dict.fromkeys((nodes[1], nodes[2], nodes[3]), 0)


def test_a_constant_floats_to_its_first_user():
    made, nodes = graph([[], [], [0], [2, 1]])  # 1 is read by 3 alone, behind the CPU op 2
    on_coreml = {nodes[0], nodes[1], nodes[3]}
    assert levels(made, on_coreml, set())[nodes[1]] == 0
    assert levels(made, on_coreml, {nodes[1]})[nodes[1]] == 1


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_have_no_cycle_and_no_gap(seed):
    random.seed(seed)
    count = random.randint(2, 30)
    made, nodes = graph([random.sample(range(n), min(n, random.randint(0, 3))) for n in range(count)])
    on_coreml = {node for node in nodes if random.random() < 0.6}
    found = levels(made, on_coreml, set())
    assert set(found) == on_coreml
    assert set(found.values()) == set(range(len(set(found.values()))))
    # Run delegates in order, each as soon as everything that it reads is there: every node must get its turn.
    done = {node for node in made.nodes if node.op == "placeholder"}
    for number in range(len(set(found.values())) + 1):
        progress = True
        while progress:
            ready = [n for n in nodes if n not in done and n not in on_coreml and set(n.all_input_nodes) <= done]
            done.update(ready)
            progress = bool(ready)
        group = {node for node in on_coreml if found[node] == number}
        assert {i for node in group for i in node.all_input_nodes} - group <= done
        done |= group
    assert set(nodes) <= done
