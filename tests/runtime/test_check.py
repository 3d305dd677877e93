"""What the check finds in a program, and that it finds nothing in a sound one."""

import coremltools as ct
import numpy as np
import torch
from coremltools.converters.mil.mil import Builder as mb

from coreproof.runtime import check, coremltools_predict, load, read_program
from coreproof.runtime.inspect import inspect
from coreproof.runtime.ir import Block, Constant, Function, Operation, Program, StateType, TensorType, Value

F32 = TensorType("fp32", (2, 3))


def found(operations, outputs, inputs=(("x", F32),), opset="CoreML7", specification=8):
    body = Block([], operations, list(outputs))
    function = Function("main", opset, [Value(*one) for one in inputs], body)
    return [one.rule for one in check(Program({"main": function}, "main", specification))]


def op(kind, name, declared=F32, **operands):
    return Operation(kind, {key: [value] for key, value in operands.items()}, [Value(name, declared)], name=name)


def test_a_sound_program_has_no_findings():
    assert found([op("exp", "y", x="x")], ["y"]) == []


def test_borders():
    assert found([op("exp", "y", x="x")], ["y", "y"]) == ["repeated-output"]
    assert found([op("exp", "y", x="x")], ["y", "x"]) == ["output-is-input"]
    flag = TensorType("bool", (2, 3))
    assert found([op("logical_not", "y", flag, x="x")], ["y"], [("x", flag)]) == ["border-dtype", "border-dtype"]
    half = TensorType("fp16", (2, 3))
    old = found([op("exp", "y", half, x="x")], ["y"], [("x", half)], "CoreML5", 6)
    assert old == ["border-dtype", "border-dtype"]
    assert found([op("exp", "y", TensorType("fp32", ()), x="x")], ["y"], [("x", TensorType("fp32", ()))]) == [
        "rank-0-input"
    ]
    assert "no-inputs" in found([op("exp", "y", x="y")], ["y"], [])


def test_types_and_opsets():
    assert found([op("nonsense", "y", x="x")], ["y"]) == ["unknown-op"]
    attention = op("scaled_dot_product_attention", "y", query="x", key="x", value="x")
    assert found([attention], ["y"]) == ["op-not-in-opset"]
    assert found([op("exp", "y", x="x")], ["y"], opset="CoreML8", specification=7) == ["opset-newer"]
    six = TensorType("fp32", (1, 1, 1, 1, 2, 3))
    assert found([op("exp", "z", six, x="x"), op("exp", "y", x="z")], ["y"]) == ["rank"]
    whole = TensorType("int32", (2, 3))
    assert found([op("softmax", "y", whole, x="x")], ["y"], [("x", whole)]) == ["operand-dtype"]
    state = ("s", StateType(TensorType("fp32", (2,))))
    assert found([op("exp", "y", x="x")], ["y"], [("x", F32), state]) == ["state-dtype", "state-target"]


def test_writes_of_states_are_known_from_ios18_on():
    half = TensorType("fp16", (2, 3))
    state, x = ("s", StateType(half)), ("x", half)
    for kind, names in (("write_state", ("input", "data")), ("coreml_update_state", ("state", "value"))):
        write = Operation(kind, {names[0]: ["s"], names[1]: ["x"]}, [], name="write")
        operations = [write, op("read_state", "y", half, input="s")]
        assert found(operations, ["y"], [x, state], "CoreML8", 9) == []
        assert set(found(operations, ["y"], [x, state])) == {"state-target", "op-not-in-opset"}


def test_two_to_a_power():
    two = Constant(TensorType("fp32", ()), lambda: torch.tensor(2.0))
    assert found([op("pow", "y", x=two, y="x")], ["y"]) == ["pow-of-two"]


def _model():
    @mb.program(input_specs=[mb.TensorSpec(shape=(2, 3))], opset_version=ct.target.iOS17)
    def program(x):
        return mb.linear(x=x, weight=np.ones((400, 3), np.float32), name="y")

    return ct.convert(program, minimum_deployment_target=ct.target.iOS17, skip_model_load=True)


def test_inspect_says_what_a_model_holds():
    document = inspect(read_program(_model()))
    main = document["functions"]["main"]
    assert (document["target"], main["opset"]) == ("iOS17", "CoreML7")
    assert main["inputs"] == {"x": {"type": "fp32[2, 3]"}}
    assert main["ops"]["linear"] == 1
    assert main["weights"]["fp16"] >= 400 * 3 * 2


def test_predict_of_coremltools_works_inside_and_is_as_before_outside():
    model, original = _model(), ct.models.MLModel.predict
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    with coremltools_predict():
        got = model.predict({"x": x})["y"]
        both = model.predict([{"x": x}, {"x": 2 * x}])
    assert got[:, 0].tolist() == [6.0, 15.0]
    assert both[1]["y"][:, 0].tolist() == [12.0, 30.0]
    assert ct.models.MLModel.predict is original
    assert load(model).predict({"x": x})["y"].tolist() == got.tolist()
