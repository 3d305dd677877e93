"""A state's update writes into the state's memory where nobody can see it, and nowhere else."""

import pytest
import torch

from coreproof.runtime.interpreter import Interpreter
from coreproof.runtime.ir import Block, Constant, Function, Operation, StateType, TensorType, Value
from coreproof.runtime.states import State

KIND = TensorType("fp32", (4,))


def const(*values):
    dtype = torch.int32 if all(isinstance(v, int) for v in values) else torch.float32
    name = "int32" if dtype == torch.int32 else "fp32"
    return [Constant(TensorType(name, (len(values),)), lambda: torch.tensor(values, dtype=dtype))]


def op(kind, out, type_=KIND, **operands):
    outputs = [] if out is None else [Value(out, type_)]
    given = {name: [one] if isinstance(one, str) else one for name, one in operands.items()}
    return Operation(kind, given, outputs, name=out or kind)


def read(out):
    return op("read_state", out, input="cache")


def write(data):
    return op("write_state", None, input="cache", data=data)


def update(x, out, position, value):
    """out = x with the value at one position"""
    return op("slice_update", out, x=x, update=const(value), begin=const(position), end=const(position + 1))


def runs(operations, outputs, times=2, **options):
    """The outputs of each run and the state at the end, all as lists, read after the last run."""
    inputs = [Value("cache", StateType(KIND)), Value("x", KIND)]
    interpreter = Interpreter(Function("main", "CoreML8", inputs, Block([], operations, outputs)))
    state = State("cache", KIND, torch.zeros(4))
    results = [interpreter.run({"cache": state, "x": torch.ones(4)}, **options) for _ in range(times)]
    return [{name: value.tolist() for name, value in one.items()} for one in results], state


def scattered(x, out, position, value):
    return op("scatter", out, data=x, indices=const(position), updates=const(value), mode=[_text("update")])


def _text(value):
    return Constant(TensorType("string", ()), lambda: value)


@pytest.mark.parametrize("change", [update, scattered])
def test_the_memory_of_a_state_is_used_again(change):
    operations = [read("a"), change("a", "b", 1, 5.0), change("b", "c", 2, 6.0), write("c"), read("d")]
    operations.append(op("add", "e", x="d", y="x"))
    memory = torch.zeros(4)
    inputs = [Value("cache", StateType(KIND)), Value("x", KIND)]
    interpreter = Interpreter(Function("main", "CoreML8", inputs, Block([], operations, ["e"])))
    state = State("cache", KIND, memory)
    result = interpreter.run({"cache": state, "x": torch.ones(4)})
    assert result["e"].tolist() == [1, 6, 7, 1]
    assert state.tensor.data_ptr() == memory.data_ptr()
    assert memory.tolist() == [0, 5, 6, 0]


def test_through_casts():
    half = TensorType("fp16", (4,))
    operations = [
        op("read_state", "a", input="cache"),
        op("cast", "b", x="a", dtype=[_text("fp32")]),
        update("b", "c", 3, 2.0),
        op("cast", "d", half, x="c", dtype=[_text("fp16")]),
        write("d"),
        op("add", "e", x="c", y="x"),
    ]
    results, state = runs(operations, ["e"])
    assert results == [{"e": [1, 1, 1, 3]}] * 2
    assert state.tensor.tolist() == [0, 0, 0, 2]


def test_what_was_read_before_stays():
    operations = [read("a"), update("a", "b", 0, 7.0), write("b"), op("add", "c", x="a", y="x")]
    results, state = runs(operations, ["c", "b"])
    assert results == [{"c": [1, 1, 1, 1], "b": [7, 0, 0, 0]}, {"c": [8, 1, 1, 1], "b": [7, 0, 0, 0]}]


def test_a_view_of_what_was_read_stays():
    operations = [read("a"), op("identity", "v", x="a"), update("a", "b", 0, 7.0), write("b")]
    results, _ = runs(operations, ["v"], times=1)
    assert results == [{"v": [0, 0, 0, 0]}]


def test_a_second_read_stays():
    operations = [read("a"), read("again"), update("a", "b", 0, 7.0), write("b")]
    results, _ = runs(operations, ["again"], times=1)
    assert results == [{"again": [0, 0, 0, 0]}]


def test_a_change_that_is_not_written_back_leaves_the_state():
    results, state = runs([read("a"), update("a", "b", 0, 7.0)], ["b"])
    assert results == [{"b": [7, 0, 0, 0]}] * 2
    assert state.tensor.tolist() == [0, 0, 0, 0]
    results, state = runs([read("a"), update("a", "b", 0, 7.0), write("x")], ["b"])
    assert results == [{"b": [7, 0, 0, 0]}, {"b": [7, 1, 1, 1]}]
    assert state.tensor.tolist() == [1, 1, 1, 1]


def test_the_state_does_not_share_memory_with_an_input():
    given = torch.ones(4)
    inputs = [Value("cache", StateType(KIND)), Value("x", KIND)]
    operations = [write("x"), read("a"), update("a", "b", 0, 7.0), write("b")]
    interpreter = Interpreter(Function("main", "CoreML8", inputs, Block([], operations, ["b"])))
    state = State("cache", KIND, torch.zeros(4))
    for _ in range(2):
        interpreter.run({"cache": state, "x": given})
    assert given.tolist() == [1, 1, 1, 1]


def test_results_of_one_run_are_apart_from_the_next():
    counted = [read("a"), op("add", "b", x="a", y="x"), write("b"), read("c")]
    results, _ = runs(counted, ["c"])
    assert results == [{"c": [1, 1, 1, 1]}, {"c": [2, 2, 2, 2]}]
    kept = [read("a"), op("scatter", "b", data="a", indices=const(0), updates=const(2.0), mode=[_text("add")])]
    results, _ = runs([*kept, write("b"), read("c")], ["b", "c"])
    assert results == [{"b": [2, 0, 0, 0], "c": [2, 0, 0, 0]}, {"b": [4, 0, 0, 0], "c": [4, 0, 0, 0]}]


def test_tapped_values_stay():
    operations = [read("a"), update("a", "b", 0, 7.0), update("b", "c", 1, 8.0), write("c")]
    results, _ = runs(operations, ["c"], times=1, taps="all")
    assert results[0] == {"c": [7, 8, 0, 0], "x": [1, 1, 1, 1], "a": [0, 0, 0, 0], "b": [7, 0, 0, 0]}
