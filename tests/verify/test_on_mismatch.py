"""What `lower` does where a finished delegate is wrong although each of its ops was right: a pass that breaks one."""

import pytest
import torch
from lowered import Call

import coreproof
from coreproof.convert import program as conversion
from coreproof.errors import InputError, MismatchError
from coreproof.runtime import load

X = torch.tensor([[1.5, -2.0, 0.25], [3.0, -0.5, 8.0]])


@pytest.fixture
def broken_pass(monkeypatch):
    """Makes every `relu` of a finished program a `square`, after all of its ops were proven one by one."""
    give_outputs = conversion.give_outputs_their_own_ops

    def broken(mil):
        from coremltools.converters.mil.mil import Builder as mb

        for function in mil.functions.values():
            for op in [op for op in function.operations if op.op_type == "relu"]:
                with function:
                    other = mb.square(x=op.x, name=op.outputs[0].name, before_op=op)
                other.op.scopes = op.scopes
                function.replace_uses_of_var_after_op(anchor_op=op, old_var=op.outputs[0], new_var=other)
                function.remove_ops([op])
        give_outputs(mil)

    monkeypatch.setattr(conversion, "give_outputs_their_own_ops", broken)


def net(m, x):
    return torch.relu(x * 2) + x.exp()


def test_the_wrong_op_goes_to_the_cpu_with_the_evidence(broken_pass):
    module = Call(net).eval()
    lowered = coreproof.lower(module, (X,))
    assert lowered.verification.outcome == "match"
    (refusal,) = lowered.placement.refusals
    assert (refusal.rule, refusal.op) == ("verified-wrong", "aten.relu.default")
    assert "torch makes" in refusal.reason
    # The rest rounds to float16, at values up to e^8: 16 roundings of the greatest.
    (got,) = load(lowered.pte).run(X)
    torch.testing.assert_close(got, module(X), rtol=0, atol=16 * 2**-11 * 2981)


def test_error_and_keep(broken_pass):
    with pytest.raises(MismatchError, match=r"it begins at aten\.relu\.default \(tests/") as raised:
        coreproof.lower(Call(net).eval(), (X,), on_mismatch="error")
    assert raised.value.exit_code == 1 and raised.value.verification.first_wrong.mil_op == "square"
    kept = coreproof.lower(Call(net).eval(), (X,), on_mismatch="keep")
    assert kept.verification.outcome == "mismatch" and not kept.placement.refusals


def test_an_unknown_choice():
    with pytest.raises(InputError, match="cpu, error, keep"):
        coreproof.lower(Call(net).eval(), (X,), on_mismatch="ignore")


def test_not_verified():
    assert coreproof.lower(Call(net).eval(), (X,), verify=False).verification is None


def test_without_example_inputs_nothing_is_shown():
    program = torch.export.export(Call(net).eval(), (X,))
    program.example_inputs = None
    lowered = coreproof.lower(program)
    assert lowered.verification.outcome == "unverified"
