"""Branches, loops and lists, alone and in a program."""

import coremltools as ct
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Builder as mb
from op_run import run

from coreproof.errors import ModelError
from coreproof.runtime import load
from coreproof.runtime.ops import control_flow


def test_only_the_branch_that_is_taken_runs():
    def never():
        raise AssertionError("the other branch ran")

    assert run("cond", pred=torch.tensor(True), blocks=[lambda: [1, 2], never]) == [1, 2]
    assert run("cond", pred=torch.tensor(False), blocks=[never, lambda: [3]]) == [3]


def test_a_loop_may_run_never_and_may_not_run_for_ever(monkeypatch):
    def body(value):
        return [value + 1]

    def below(limit):
        return lambda value: [torch.tensor(int(value) < limit)]

    assert run("while_loop", loop_vars=[torch.tensor(0)], blocks=[below(0), body]) == [torch.tensor(0)]
    assert run("while_loop", loop_vars=[torch.tensor(0)], blocks=[below(5), body]) == [torch.tensor(5)]
    monkeypatch.setattr(control_flow, "_MAX_STEPS", 10)
    with pytest.raises(ValueError, match="still running after 10 steps"):
        run("while_loop", loop_vars=[torch.tensor(0)], blocks=[below(11), body])


def test_lists_grow_and_are_not_changed_in_place():
    empty = run("make_list", elem_shape=[torch.tensor(2)], init_length=1)
    one = run("list_write", ls=empty, index=2, value=torch.tensor([1.0, 2.0]))
    assert (int(run("list_length", ls=empty)), int(run("list_length", ls=one))) == (1, 3)
    two = run("list_scatter", ls=one, indices=[3, 0], value=torch.tensor([[5.0, 6.0], [7.0, 8.0]]))
    assert run("list_gather", ls=two, indices=[2, 3, 0, 1]).tolist() == [[1, 2], [5, 6], [7, 8], [0, 0]]
    assert run("list_read", ls=one, index=0).tolist() == [0, 0] and run("list_read", ls=two, index=0).tolist() == [7, 8]
    with pytest.raises(ValueError, match="index 3 of a list of 3"):
        run("list_read", ls=one, index=3)
    with pytest.raises(ValueError, match="expected 0 to"):
        run("list_write", ls=one, index=2**30, value=torch.zeros(2))
    with pytest.raises((ValueError, ModelError)):
        run("make_list", elem_shape=[torch.tensor(2)], init_length=2**40)


def test_a_loop_that_fills_a_list_in_a_program():
    @mb.program(input_specs=[mb.TensorSpec(shape=(2,))], opset_version=ct.target.iOS16)
    def program(x):
        ls = mb.make_list(init_length=1, dynamic_length=True, elem_shape=(2,))

        def again(step, value, ls):
            return mb.less(x=step, y=3)

        def body(step, value, ls):
            written = mb.list_write(ls=ls, index=step, value=value)
            return mb.add(x=step, y=1), mb.mul(x=value, y=2.0), written

        _, last, ls = mb.while_loop(_cond=again, _body=body, loop_vars=(mb.identity(x=np.int32(0)), x, ls))
        return mb.list_gather(ls=ls, indices=np.int32([2, 0, 1])), last

    gathered, last = load(program).predict({"x": np.float32([1, -3])}).values()
    assert gathered.tolist() == [[4, -12], [1, -3], [2, -6]] and last.tolist() == [8, -24]
