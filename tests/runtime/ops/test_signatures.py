"""Every op of coremltools 9.0 is there, in each opset, with the same operands and the same ones required."""

import pytest
from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

from coreproof.errors import ModelError
from coreproof.runtime.ops import OPSETS, find_op

FIRST = 6  # the specification version of iOS 15, whose opset is OPSETS[0]
# A const is read, not run; the symbolic one exists inside coremltools only.
NO_FUNCTION = {"const", "_const_symbolic"}
OPS = sorted(set(SSAOpRegistry.core_ops) - NO_FUNCTION)


def test_there_are_168():
    assert len(SSAOpRegistry.core_ops) == 168


@pytest.mark.parametrize("op", OPS)
def test_operands_in_every_opset(op):
    versions = {int(version): cls for version, cls in SSAOpRegistry.core_ops[op].items()}
    for number, opset in enumerate(OPSETS[:4]):
        cls = versions.get(FIRST + number)
        if cls is None:
            with pytest.raises(ModelError, match="not in the opset"):
                find_op(op, opset, op)
            continue
        expected = {name: kind for name, kind in cls.input_spec.input_types.items() if not name.startswith("_")}
        got = find_op(op, opset, op).parameters
        assert set(got) == set(expected)
        assert {name for name, one in got.items() if one.required} == {
            name for name, kind in expected.items() if not kind.optional
        }


def test_an_op_that_is_none_is_named():
    with pytest.raises(ModelError, match="no op of this name"):
        find_op("nonsense", "CoreML8", "nonsense 'x'")
