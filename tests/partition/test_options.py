"""Options: spellings that are accepted, and one clear line for those that are not."""

import coremltools as ct
import pytest
import torch

import coreproof
from coreproof.partition.options import (
    PartitionOptions,
    names_op,
    parse_compute_units,
    parse_precision,
    parse_target,
)


@pytest.mark.parametrize("text", ["iOS17", "ios17", "macOS14", ct.target.iOS17])
def test_targets(text):
    assert parse_target(text) == ct.target.iOS17


@pytest.mark.parametrize("text", ["iOS14", "iOS99", "android", ct.target.iOS14])
def test_unknown_targets(text):
    with pytest.raises(coreproof.InputError, match="unknown deployment target.*iOS15.*iOS18"):
        parse_target(text)


def test_precision_and_units():
    assert parse_precision("float32") == ct.precision.FLOAT32
    assert parse_compute_units("CPU_ONLY") == ct.ComputeUnit.CPU_ONLY
    with pytest.raises(coreproof.InputError, match="float16, float32"):
        parse_precision("bfloat16")
    with pytest.raises(coreproof.InputError, match="cpu_and_ne"):
        parse_compute_units("npu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mutable_buffer_state": "sometimes"}, "unknown mutable_buffer_state 'sometimes'.*auto, always, never"),
        ({"skip_ops_for_coreml_delegation": "aten.gelu"}, "is the string 'aten.gelu'; expected a list"),
        ({"extra_kernels": "aten::i0"}, "is the string 'aten::i0'; expected a list"),
    ],
)
def test_arguments_that_are_no_options(options, message):
    with pytest.raises(coreproof.InputError, match=message):
        coreproof.CoreMLPartitioner(**options)


@pytest.mark.parametrize(
    ("skip", "op", "same"),
    [
        ("aten.mm.default", "aten.mm.default", True),
        ("mm", "aten.mm.default", True),
        ("aten.MM", "aten.mm.default", True),
        ("mm.default", "aten.mm.default", True),
        ("mm", "aten.bmm.default", False),
        ("aten.mm", "aten.addmm.default", False),
        ("dim_order_ops._to_dim_order_copy", "dim_order_ops._to_dim_order_copy.default", True),
    ],
)
def test_names_of_ops_to_skip(skip, op, same):
    assert names_op(skip, op) is same


@pytest.mark.parametrize(
    ("dtype", "options", "is_state"),
    [
        (torch.float32, {"target": ct.target.iOS18}, True),
        (torch.float32, {"target": ct.target.iOS17}, False),
        (torch.float32, {}, False),  # coremltools' default target is iOS 15
        (torch.float32, {"target": ct.target.iOS18, "precision": ct.precision.FLOAT32}, False),
        (torch.float32, {"target": ct.target.iOS18, "precision": ct.precision.FLOAT32, "state": "always"}, True),
        (torch.float32, {"target": ct.target.iOS18, "state": "never"}, False),
        (torch.int64, {"target": ct.target.iOS18, "state": "always"}, False),
        (torch.bool, {"target": ct.target.iOS18}, False),
    ],
)
def test_which_buffers_may_be_state(dtype, options, is_state):
    assert (PartitionOptions(**options).why_no_state(torch.zeros(2, dtype=dtype)) == "") is is_state
