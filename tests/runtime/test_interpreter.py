"""How a program is run: modes, taps, freed values, checks against declarations, errors that name the op."""

import coremltools as ct
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import types

from coreproof.errors import InputError, ModelError
from coreproof.runtime import load
from coreproof.runtime.interpreter import Interpreter
from coreproof.runtime.ir import Block, Constant, Function, Operation, Program, TensorType, Value
from coreproof.runtime.model import Model

X = np.array([[0.1, -2.0, 3.3], [1e-3, 7.0, -0.5]], np.float32)


def _chain(*steps, opset="CoreML7", shape=(2, 3), dtype="fp32"):
    """A program of unary ops in a row: (op, name, declared type, constant operands)."""
    last, operations = "x", []
    for op, name, declared, constants in steps:
        operands = {"x": [last]} | {key: [constant] for key, constant in constants.items()}
        operations.append(Operation(op, operands, [Value(name, declared)], name=name))
        last = name
    body = Block([], operations, [last])
    function = Function("main", opset, [Value("x", TensorType(dtype, shape))], body)
    return Program({"main": function}, "main")


def _scalar(value, dtype="fp32"):
    element = TensorType(dtype, ()).element
    return Constant(TensorType(dtype, ()), lambda: torch.tensor(value, dtype=element.stored))


HALF, SINGLE = TensorType("fp16", (2, 3)), TensorType("fp32", (2, 3))


def test_declared_rounds_each_result_once_and_exact_rounds_none():
    steps = (("exp", "a", HALF, {}), ("tanh", "b", HALF, {}))
    program = _chain(*steps)
    half = torch.tanh(torch.exp(torch.from_numpy(X)).half().float()).half()
    assert Model(program).predict({"x": X})["b"].tolist() == half.tolist()
    exact = Model(program, "exact").predict({"x": X}, taps=["a"])
    assert exact["a"].tolist() == torch.exp(torch.from_numpy(X)).half().tolist()  # given back in its declared type
    kept = Interpreter(program.functions["main"], "exact").run({"x": torch.from_numpy(X)})["b"]
    assert torch.equal(kept, torch.tanh(torch.exp(torch.from_numpy(X))))


def test_a_half_result_overflows_in_declared_mode_only():
    program = _chain(("exp", "a", HALF, {}))
    big = np.full((2, 3), 12.0, np.float32)  # exp(12) = 162754 > 65504
    assert np.isinf(Model(program).predict({"x": big})["a"]).all()
    exact = Interpreter(program.functions["main"], "exact").run({"x": torch.from_numpy(big)})["a"]
    assert torch.isfinite(exact).all()


def test_taps_and_stop_after():
    model = Model(_chain(("exp", "a", SINGLE, {}), ("tanh", "b", SINGLE, {}), ("relu", "c", SINGLE, {})))
    everything = model.predict({"x": X}, taps="all")
    assert set(everything) == {"x", "a", "b", "c"}
    np.testing.assert_array_equal(everything["a"], torch.exp(torch.from_numpy(X)).numpy())
    assert set(model.predict({"x": X}, taps=["a"])) == {"a", "c"}
    assert set(model.predict({"x": X}, stop_after="b")) == {"b"}
    with pytest.raises(InputError, match="no value named 'z'"):
        model.predict({"x": X}, taps=["z"])


def test_values_are_freed_after_their_last_use():
    program = _chain(*((("exp", "tanh")[i % 2], f"v{i}", SINGLE, {}) for i in range(6)))
    interpreter = Interpreter(program.functions["main"])
    (steps,) = interpreter._steps.values()
    assert [step.drops for step in steps] == [(), ("v0",), ("v1",), ("v2",), ("v3",), ("v4",)]


@pytest.mark.parametrize(
    "program, text",
    [
        (_chain(("exp", "a", TensorType("fp32", (2, 4)), {})), r"exp 'a': made shape \[2, 3\]; declared fp32\[2, 4\]"),
        (_chain(("exp", "a", TensorType("int32", (2, 3)), {})), "exp 'a': made torch.float32; declared int32"),
        (_chain(("nonsense", "a", SINGLE, {})), "nonsense 'a': no op of this name"),
        (_chain(("relu", "a", SINGLE, {}), opset="CoreML4"), "unknown opset 'CoreML4'"),
        (_chain(("relu", "a", SINGLE, {"alpha": _scalar(1.0)})), "relu 'a': has no operand 'alpha'"),
        (_chain(("linear_activation", "a", SINGLE, {})), "linear_activation 'a': operand 'alpha' is missing"),
        (_chain(("gelu", "a", SINGLE, {"mode": _scalar(1.0)})), "gelu 'a': operand 'mode': expected a string"),
        (_chain(("exp", "a", TensorType("fp32", (2**20, 2**20)), {})), "exp 'a': a value of 4096.0 GiB"),
    ],
)
def test_a_malformed_program_is_one_error_that_names_the_op(program, text):
    with pytest.raises(ModelError, match=text):
        Model(program).predict({"x": X})


def test_a_value_that_nothing_makes_and_a_cycle():
    def program(first, second):
        body = Block(
            [],
            [
                Operation("exp", {"x": [first]}, [Value("a", SINGLE)], name="a"),
                Operation("tanh", {"x": [second]}, [Value("b", SINGLE)], name="b"),
            ],
            ["b"],
        )
        return Program({"main": Function("main", "CoreML7", [Value("x", SINGLE)], body)}, "main")

    with pytest.raises(ModelError, match="tanh 'b': operand 'x' reads 'missing', which no earlier op makes"):
        Model(program("x", "missing")).predict({"x": X})
    with pytest.raises(ModelError, match="exp 'a': operand 'x' reads 'b', which no earlier op makes"):
        Model(program("b", "a")).predict({"x": X})


def test_names_that_repeat_before_the_passes_are_told_apart():
    @mb.program(input_specs=[mb.TensorSpec(shape=(2, 3))], opset_version=ct.target.iOS17)
    def program(x):
        first = mb.exp(x=x, name="same")
        return mb.tanh(x=mb.relu(x=first, name="same"), name="y")

    got = load(program).predict({"x": X})["y"]
    np.testing.assert_array_equal(got, torch.tanh(torch.relu(torch.exp(torch.from_numpy(X)))).numpy())


def test_inputs_are_checked():
    model = Model(_chain(("exp", "a", SINGLE, {})))
    with pytest.raises(InputError, match="no input 'y'; expected x"):
        model.predict({"y": X})
    with pytest.raises(InputError, match=r"'x' is missing; expected fp32\[2, 3\]"):
        model.predict({})
    with pytest.raises(InputError, match=r"shape \[3, 2\]; expected fp32\[2, 3\]"):
        model.predict({"x": X.T})
    with pytest.raises(InputError, match="'x' is of type <U5"):
        model.predict({"x": np.full((2, 3), "hello")})
    with pytest.raises(InputError, match="function named 'other'"):
        model.predict({"x": X}, function_name="other")
    assert np.isnan(model.predict({"x": np.full((2, 3), np.nan)})["a"]).all()


def test_integer_inputs_must_be_whole_and_in_range():
    model = Model(_chain(("identity", "a", TensorType("int32", (2, 3)), {}), dtype="int32"))
    assert model.predict({"x": np.full((2, 3), 7.0)})["a"].dtype == np.int32
    with pytest.raises(InputError, match="no integers"):
        model.predict({"x": X})
    with pytest.raises(InputError, match="values outside -2147483648"):
        model.predict({"x": np.full((2, 3), 2**31)})


def test_dynamic_sizes_take_what_comes():
    size = ct.RangeDim(1, 8, symbol="n")

    @mb.program(input_specs=[mb.TensorSpec(shape=(size.symbol, 3), dtype=types.fp32)], opset_version=ct.target.iOS17)
    def program(x):
        return mb.exp(x=x, name="y")

    model = load(program)
    for length in (1, 5):
        assert model.predict({"x": np.ones((length, 3), np.float32)})["y"].shape == (length, 3)


def test_ten_thousand_ops_in_a_row_run():
    program = _chain(*(("relu", f"v{i}", SINGLE, {}) for i in range(10_000)))
    np.testing.assert_array_equal(Model(program).predict({"x": X})["v9999"], np.maximum(X, 0))


def test_a_scatter_that_adds_rounds_its_half_result():
    half, index = TensorType("fp16", (1,)), TensorType("int32", (1,))
    operands = {
        "data": ["x"],
        "indices": [Constant(index, lambda: torch.tensor([0], dtype=torch.int32))],
        "updates": [Constant(half, lambda: torch.tensor([1.5], dtype=torch.float16))],
    }
    body = Block([], [Operation("scatter", operands, [Value("y", half)], name="y")], ["y"])
    function = Function("main", "CoreML7", [Value("x", half)], body)
    program = Program({"main": function}, "main")
    # Halves from 2048 to 4096 are 2 apart: 2048 + 1.5 rounds to 2050.
    assert Interpreter(function).run({"x": torch.tensor([2048.0])})["y"].tolist() == [2050.0]
    assert Model(program).predict({"x": [2048.0]})["y"].tolist() == [2050.0]
