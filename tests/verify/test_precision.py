"""What float16 costs is told op by op, and the fix that is named gets rid of it."""

import pytest
import torch
from lowered import Call

import coreproof
from coreproof.errors import InputError
from coreproof.report.console import as_text
from coreproof.report.table import placement_report
from coreproof.report.verification import verification_report
from coreproof.verify.precision import float32_ops

X = torch.tensor([[1.0, 2.0, 12.0], [0.5, 3.0, 1.5]])


CASES = {
    # e^12 = 162755 > 65504
    "softmax by hand": (lambda m, x: x.exp() / x.exp().sum(1, keepdim=True), (X,), {"overflow"}, "aten.exp.default"),
    # 300^2 = 90000 > 65504
    "sum of squares": (
        lambda m, x: (x * 300 / 12).pow(2).sum(1).sqrt(),
        (X * 12,),
        {"overflow"},
        "aten.pow.Tensor_Scalar",
    ),
    # 1500 * 100 > 65504, and relu only passes it on
    "passed on": (lambda m, x: torch.relu(x * 100) / 100 + x, (X * 1e3,), {"overflow"}, "aten.mul.Tensor"),
    # 1e-5^2 = 1e-10 < 2^-24
    "product of small ones": (lambda m, x: x * x / (x * x + 1e-9), (X * 1e-5,), {"underflow"}, "aten.mul.Tensor"),
    # 4097 lies between float16's 4096 and 4100
    "large counts": (lambda m, x: (x + 4096) - 4096.0, (X.round(),), {"integer"}, "aten.add.Tensor"),
}


def checked(lowered):
    """The verification of a delegate, and its hazards by kind."""
    assert lowered.verification.outcome in ("match", "precision")
    found = [one for check in lowered.verification.checks for one in check.hazards]
    return lowered.verification.outcome, found


@pytest.mark.parametrize("name", CASES)
def test_a_hazard_is_named_and_the_fix_is_rid_of_it(name):
    function, inputs, kinds, op = CASES[name]
    module = Call(function).eval()
    outcome, found = checked(coreproof.lower(module, inputs))
    lost = [one for one in found if one.kind != "error"]
    assert outcome == "precision" and kinds <= {one.kind for one in lost}
    assert lost[0].op == op and lost[0].source.startswith("tests/") and "becomes" in lost[0].example
    outcome, found = checked(coreproof.lower(module, inputs, compute_precision="mixed", float32_ops=float32_ops(found)))
    assert outcome == "match" and not found


def test_the_share_of_each_op_adds_up_to_one():
    function = Call(lambda m, x: torch.sin(x * 100.3) + torch.tanh(x) * 1e-3).eval()
    outcome, found = checked(coreproof.lower(function, (X,)))
    shares = {one.op: one.amount for one in found if one.kind == "error"}
    assert outcome == "precision" and sum(shares.values()) == pytest.approx(1, abs=0.05)
    # Angles up to 1204 are rounded to whole radians and halves; the sine itself to 2^-12.
    assert max(shares, key=shares.get) == "aten.mul.Tensor" and shares["aten.mul.Tensor"] > 0.9


@pytest.mark.parametrize("names", [["aten.exp.default"], ["exp"], ["aten_exp_default"]])
def test_an_op_is_named_as_an_op_or_as_a_node(names):
    module = Call(lambda m, x: (x.exp() * 2).tanh()).eval()
    lowered = coreproof.lower(module, (X,), compute_precision="mixed", float32_ops=names, verify=False)
    (delegate,) = coreproof.runtime.load(lowered.pte).loaded("forward").delegates
    types = {op.type: op.outputs[0].type.dtype for op in delegate.function.body.walk() if op.outputs}
    assert types["exp"] == "fp32" and types["tanh"] == "fp16"


def test_what_does_not_fit_is_refused():
    module = Call(lambda m, x: x.exp()).eval()
    with pytest.raises(InputError, match="go together"):
        coreproof.lower(module, (X,), compute_precision="mixed")
    with pytest.raises(InputError, match="go together"):
        coreproof.lower(module, (X,), float32_ops=["aten.exp.default"])
    with pytest.raises(InputError, match="no op named aten.sin.default.*nothing to keep float32"):
        coreproof.lower(module, (X,), compute_precision="mixed", float32_ops=["aten.sin.default"])


def test_the_report_ends_in_the_line_that_keeps_the_ops_float32():
    module = Call(CASES["sum of squares"][0]).eval()
    lowered = coreproof.lower(module, (X * 12,))
    for text in (
        as_text(verification_report(lowered.verification)),
        as_text(placement_report(lowered.placement, verification=lowered.verification)),
    ):
        assert "What float16 costs" in text and "becomes inf" in " ".join(text.split())
        assert 'compute_precision="mixed", float32_ops=["aten_pow_tensor_scalar"' in " ".join(text.split())
