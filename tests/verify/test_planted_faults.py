"""Planted faults: every one is called a mismatch, and the op that it was planted in is named."""

from __future__ import annotations

import numpy as np
import pytest
from verify.faulty_models import MODELS
from verify.mutations import Edited, Fault, faulty_check, recorded

from coreproof.verify.compare import tolerance
from coreproof.verify.delegates import check_delegate
from coreproof.verify.lowered import explained


def constant(kind, operand, value, nth=0):
    """The operand of the nth op of a kind is another constant, in the dtype that it had."""

    def plant(e: Edited) -> None:
        op = e.op(kind, nth)
        if isinstance(value, (str, bool)):
            e.set(op, operand, value)
        else:
            e.change(op, operand, value if callable(value) else lambda old: np.asarray(value).reshape(old.shape))

    return plant


def swapped(kind, first="x", second="y", nth=0):
    return lambda e: e.swap(e.op(kind, nth), first, second)


def becomes(kind, other, nth=0):
    """The op is another one with the same operands."""

    def plant(e: Edited) -> None:
        e.op(kind, nth).type = other

    return plant


def left_out(kind, nth=0, operand="x"):
    return lambda e: e.pass_on(e.op(kind, nth), operand)


def without(kind, operand, nth=0):
    """An optional operand is not given."""

    def plant(e: Edited) -> None:
        del e.op(kind, nth).inputs[operand]

    return plant


def with_shape(sizes, plant, kind, nth=0):
    """A fault that changes the shape, declared as it then is."""

    def both(e: Edited) -> None:
        plant(e)
        e.shape(e.op(kind, nth), sizes)

    return both


def tanh_gelu_made_exact(e):
    e.set(e.op("gelu"), "mode", "EXACT")


def outputs_exchanged(first, second):
    def plant(e: Edited) -> None:
        names = e.metadata["outputNames"]
        i, j = names.index(first), names.index(second)
        names[i], names[j] = names[j], names[i]

    return plant


def one_weight(old):
    new = old.copy()
    new.flat[9] += 0.25
    return new


def keep_old_state(e):
    e.remove(e.op("write_state"))


def update_too_early(e):
    e.read(e.op("write_state"), "data", e.op("mul").outputs[0].name)


def reads_the_old_state(e):
    e.read(e.op("reduce_sum"), "x", e.op("read_state").outputs[0].name)


def same_values_in_another_order(e):
    e.reversed(e.op("concat"), "values")


def stacked_in_another_order(e):
    e.reversed(e.op("stack"), "values")


def last_two_sizes(old):
    return np.swapaxes(old, -1, -2)


def group_of_the_other(old):
    return old[[2, 3, 0, 1]]


FAULTS = [
    Fault("activations", "tanh GELU made exact", tanh_gelu_made_exact, "aten.gelu.default"),
    Fault(
        "activations", "exact GELU made tanh", constant("gelu", "mode", "TANH_APPROXIMATION", 1), "aten.gelu.default"
    ),
    Fault("activations", "slope of leaky_relu", constant("leaky_relu", "alpha", 0.11), "aten.leaky_relu.default"),
    Fault("activations", "alpha of elu", constant("elu", "alpha", 1.0), "aten.elu.default"),
    Fault("activations", "upper bound of clip", constant("clip", "beta", 0.6), "aten.clamp.default"),
    Fault("activations", "bounds of clip swapped", swapped("clip", "alpha", "beta"), "aten.clamp.default"),
    Fault("activations", "sigmoid made tanh", becomes("sigmoid", "tanh"), "aten.sigmoid.default"),
    Fault("activations", "softplus made relu", becomes("softplus", "relu"), "aten.softplus.default"),
    Fault("activations", "silu made relu", becomes("silu", "relu"), "aten.silu.default"),
    Fault("activations", "a factor off by 1%", constant("mul", "y", lambda y: y * 1.01), "aten.mul.Tensor"),
    Fault("activations", "a divisor", constant("mul", "y", lambda y: y * 1.01, 1), "aten.div.Tensor"),
    Fault(
        "activations",
        "outputs exchanged",
        outputs_exchanged("aten_elu_default", "aten_silu_default"),
        "aten.elu.default",
    ),
    Fault("arithmetic", "operands of sub", swapped("sub"), "aten.sub.Tensor"),
    Fault("arithmetic", "operands of div", swapped("real_div"), "aten.div.Tensor"),
    Fault("arithmetic", "operands of pow", swapped("pow"), "aten.pow.Tensor_Tensor"),
    Fault("arithmetic", "comparison flipped", becomes("greater", "less"), "aten.gt.Tensor"),
    Fault("arithmetic", "ties of a comparison", becomes("greater", "greater_equal"), "aten.gt.Tensor"),
    Fault("arithmetic", "ties lost", becomes("greater_equal", "greater"), "aten.ge.Tensor"),
    Fault("arithmetic", "maximum made minimum", becomes("maximum", "minimum"), "aten.maximum.default"),
    Fault("arithmetic", "branches of select", swapped("select", "a", "b"), "aten.where.self"),
    Fault("arithmetic", "condition inverted", becomes("greater", "less_equal", 1), "aten.gt.Scalar"),
    Fault("arithmetic", "addend dropped", left_out("add"), "aten.add.Tensor"),
    Fault("arithmetic", "floor made ceil", becomes("floor", "ceil"), "aten.floor.default"),
    Fault("arithmetic", "exp made exp2", becomes("exp", "exp2"), "aten.exp.default"),
    Fault("arithmetic", "sin made cos", becomes("sin", "cos"), "aten.sin.default"),
    Fault("arithmetic", "abs dropped", left_out("abs"), "aten.abs.default"),
    Fault("integers", "rounding of a division", left_out("add"), "aten.div.Tensor_mode"),
    Fault("integers", "divisor", constant("floor_div", "y", lambda y: y + 1, 1), "aten.div.Tensor_mode"),
    Fault("integers", "an addend off by one", constant("add", "y", lambda y: y + 1, 1), "aten.add.Tensor"),
    Fault("integers", "sign of a remainder", swapped("sub"), "aten.remainder.Scalar"),
    Fault("integers", "lower bound of clamp", constant("maximum", "y", lambda y: y + 1), "aten.clamp.default"),
    Fault("integers", "equal made not_equal", becomes("equal", "not_equal"), "aten.eq.Scalar"),
    Fault("shapes", "order of concat", same_values_in_another_order, "aten.cat.default"),
    Fault(
        "shapes",
        "axis of concat",
        with_shape([12, 6], constant("concat", "axis", 0), "concat"),
        "aten.cat.default",
    ),
    Fault("shapes", "order of stack", stacked_in_another_order, "aten.stack.default"),
    Fault(
        "shapes",
        "a slice off by one",
        lambda e: (constant("slice_by_index", "begin", [0, 0])(e), constant("slice_by_index", "end", [6, 3])(e)),
        "aten.slice_copy.Tensor",
    ),
    Fault(
        "shapes",
        "end of a slice",
        with_shape([6, 4], constant("slice_by_index", "end", [6, 5]), "slice_by_index"),
        "aten.slice_copy.Tensor",
    ),
    Fault("shapes", "permutation", constant("transpose", "perm", [0, 1]), "aten.permute_copy.default"),
    Fault("shapes", "transpose dropped", left_out("transpose"), "aten.permute_copy.default"),
    Fault("shapes", "pad at the other end", constant("pad", "pad", [0, 0, 2, 1]), "aten.pad.default"),
    Fault("shapes", "value of a pad", constant("pad", "constant_val", 1.0), "aten.pad.default"),
    Fault("shapes", "mode of a pad", constant("pad", "mode", "replicate", 1), "aten.pad.default"),
    Fault("shapes", "axis of flip", constant("reverse", "axes", 1), "aten.flip.default"),
    Fault(
        "shapes", "reps of tile", with_shape([12, 6], constant("tile", "reps", [2, 1]), "tile"), "aten.repeat.default"
    ),
    # A value of another layout may be a pass's work; then its reader is right.
    Fault(
        "shapes",
        "order of a reshape",
        with_shape([3, 2, 6], constant("transpose", "perm", [0, 1, 2], 1), "transpose", 1),
        "aten.view_copy.default",
    ),
    Fault(
        "shapes",
        "another piece of a split",
        lambda e: e.read(e.op("mul", 2), "x", e.op("split").outputs[0].name),
        "aten.mul.Tensor",
    ),
    Fault("reductions", "axis of sum", constant("reduce_sum", "axes", 0), "aten.sum.dim_IntList"),
    Fault("reductions", "sum made mean", becomes("reduce_sum", "reduce_mean"), "aten.sum.dim_IntList"),
    Fault("reductions", "axis of mean", constant("reduce_mean", "axes", 1), "aten.mean.dim"),
    Fault("reductions", "amax made amin", becomes("reduce_max", "reduce_min"), "aten.amax.default"),
    Fault("reductions", "axis of argmax", constant("reduce_argmax", "axis", 0), "aten.argmax.default"),
    Fault("reductions", "argmax made argmin", becomes("reduce_argmax", "reduce_argmin"), "aten.argmax.default"),
    Fault("reductions", "cumsum exclusive", constant("cumsum", "exclusive", True), "aten.cumsum.default"),
    Fault("reductions", "cumsum reversed", constant("cumsum", "reverse", True), "aten.cumsum.default"),
    Fault("reductions", "axis of cumsum", constant("cumsum", "axis", 0), "aten.cumsum.default"),
    Fault("reductions", "topk ascending", constant("topk", "ascending", True), "aten.topk.default"),
    Fault("reductions", "axis of softmax", constant("softmax", "axis", 0), "aten.softmax.int"),
    Fault("reductions", "axis of logsumexp", constant("reduce_log_sum_exp", "axes", 0), "aten.logsumexp.default"),
    Fault(
        "reductions",
        "keep_dims",
        with_shape([6], constant("reduce_sum", "keep_dims", False, 1), "reduce_sum", 1),
        "aten.sum.dim_IntList",
    ),
    Fault("norms", "eps of layer_norm", constant("layer_norm", "epsilon", 1e-3), "aten.layer_norm.default"),
    Fault("norms", "gamma of layer_norm", without("layer_norm", "gamma"), "aten.layer_norm.default"),
    Fault("norms", "beta of layer_norm", without("layer_norm", "beta"), "aten.layer_norm.default"),
    Fault(
        "norms",
        "axes of layer_norm",
        lambda e: e.set(e.op("layer_norm", 1), "axes", np.asarray([1], np.int32)),
        "aten.layer_norm.default",
    ),
    Fault(
        "norms",
        "mean and variance of batch_norm",
        swapped("batch_norm", "mean", "variance"),
        "aten._native_batch_norm_legit_no_training.default",
    ),
    Fault(
        "norms",
        "eps of batch_norm",
        constant("batch_norm", "epsilon", 1e-3),
        "aten._native_batch_norm_legit_no_training.default",
    ),
    Fault("norms", "l2 norm made l1", becomes("reduce_l2_norm", "reduce_l1_norm"), "aten.linalg_vector_norm.default"),
    Fault("vision", "pad of conv", constant("conv", "pad", [2, 0, 1, 1]), "aten.conv2d.default"),
    Fault(
        "vision",
        "stride of conv",
        with_shape([1, 6, 7, 7], constant("conv", "strides", [1, 1], 1), "conv", 1),
        "aten.conv2d.default",
    ),
    Fault(
        "vision",
        "dilation of conv",
        lambda e: (
            constant("conv", "dilations", [1, 1], 2)(e),
            constant("conv", "pad", [1, 1, 1, 1], 2)(e),
        ),
        "aten.conv2d.default",
    ),
    Fault(
        "vision", "groups of conv exchanged", constant("conv", "weight", group_of_the_other, 3), "aten.conv2d.default"
    ),
    Fault("vision", "weight of conv transposed", constant("conv", "weight", last_two_sizes), "aten.conv2d.default"),
    Fault("vision", "one weight of conv", constant("conv", "weight", one_weight), "aten.conv2d.default"),
    Fault("vision", "bias of conv", without("conv", "bias"), "aten.conv2d.default"),
    Fault(
        "vision",
        "weight of conv_transpose",
        constant("conv_transpose", "weight", lambda w: np.swapaxes(w, 0, 1)),
        "aten.conv_transpose2d.input",
    ),
    Fault("vision", "max_pool made avg_pool", becomes("max_pool", "avg_pool"), "aten.max_pool2d.default"),
    Fault(
        "vision",
        "ceil_mode",
        with_shape([1, 4, 4, 4], constant("max_pool", "ceil_mode", False, 1), "max_pool", 1),
        "aten.max_pool2d.default",
    ),
    Fault(
        "vision",
        "padding in the average",
        constant("avg_pool", "exclude_padding_from_average", False),
        "aten.avg_pool2d.default",
    ),
    Fault(
        "vision", "align_corners", constant("upsample_bilinear", "align_corners", False), "aten.upsample_bilinear2d.vec"
    ),
    Fault(
        "vision",
        "nearest made bilinear",
        becomes("upsample_nearest_neighbor", "upsample_bilinear"),
        "aten.upsample_nearest2d.vec",
    ),
    Fault(
        "attention",
        "mask dropped",
        without("scaled_dot_product_attention", "attn_mask"),
        "aten.scaled_dot_product_attention.default",
    ),
    Fault(
        "attention",
        "key and value exchanged",
        swapped("scaled_dot_product_attention", "key", "value"),
        "aten.scaled_dot_product_attention.default",
    ),
    Fault("attention", "transposed weight", constant("linear", "weight", last_two_sizes, 1), "aten.linear.default"),
    Fault("attention", "bias dropped", without("linear", "bias", 2), "aten.linear.default"),
    Fault("attention", "residual dropped", left_out("add"), "aten.add.Tensor"),
    Fault("products", "operands of matmul", swapped("matmul"), "aten.matmul.default"),
    Fault("products", "matmul of a transpose", constant("matmul", "transpose_y", True), "aten.matmul.default"),
    Fault("products", "one weight", constant("linear", "weight", one_weight, 1), "aten.linear.default"),
    Fault("products", "relu dropped", left_out("relu"), "aten.relu.default"),
    Fault("products", "einsum of no transpose", constant("matmul", "transpose_y", False, 1), "aten.einsum.default"),
    Fault(
        "products",
        "outputs exchanged",
        outputs_exchanged("aten_matmul_default", "aten_einsum_default"),
        "aten.matmul.default",
    ),
    Fault("state", "a stale state", keep_old_state, "aten.add.Tensor"),
    Fault("state", "a state that takes another value", update_too_early, "aten.add.Tensor"),
    Fault("state", "the old state is read", reads_the_old_state, "aten.sum.dim_IntList"),
    Fault("indexing", "axis of gather", constant("gather", "axis", 0, 1), "aten.index_select.default"),
    Fault("indexing", "mode of scatter", constant("scatter_nd", "mode", "update"), "aten.scatter_add.default"),
    Fault("indexing", "table of an embedding", constant("gather", "x", one_weight), "aten.embedding.default"),
    Fault("indexing", "axis of gather_along_axis", constant("gather_along_axis", "axis", 0), "aten.gather.default"),
    Fault("indexing", "fill of masked_fill", constant("select", "a", 0.5, 2), "aten.masked_fill.Scalar"),
    Fault(
        "deep",
        "tanh GELU made exact",
        lambda e: e.set(e.op("gelu", 3), "mode", "EXACT"),
        "aten.gelu.default",
        "aten_gelu_default_3",
    ),
    Fault(
        "deep",
        "one weight",
        constant("linear", "weight", one_weight, 4),
        "aten.linear.default",
        "aten_linear_default_4",
    ),
    Fault(
        "deep",
        "eps",
        constant("layer_norm", "epsilon", 1e-3, 2),
        "aten.layer_norm.default",
        "aten_layer_norm_default_2",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.model}: {fault.name}")
def test_a_planted_fault_is_found(fault):
    found = faulty_check(fault)
    assert found.outcome == "mismatch", found.reason
    wrong = found.first_wrong
    assert wrong is not None and wrong.op == fault.op
    assert wrong.node == (fault.node or wrong.node)
    assert wrong.source.startswith("tests/")


@pytest.mark.parametrize("model", MODELS)
def test_the_program_is_right_without_it(model):
    recording = recorded(model)
    assert explained(recording, check_delegate(recording, tolerance())).outcome == "match"
