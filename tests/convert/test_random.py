"""Random ops: Core ML draws its own samples, so the program itself is what can be held against torch."""

from __future__ import annotations

import pytest
import torch
from convert.dialects import TARGETS, programs

from coreproof.convert.program import to_mil

WEIGHTS = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 0.0]])
DRAWS = {
    "one": lambda w: torch.multinomial(w, 1),
    "several with replacement": lambda w: torch.multinomial(w, 5, True),
    "several with replacement by keyword": lambda w: torch.multinomial(w, num_samples=2, replacement=True),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DRAWS)
def test_multinomial_divides_by_the_sum_and_draws(name, target):
    for program in programs(DRAWS[name], (WEIGHTS,)).values():
        (function,) = to_mil(program, target).functions.values()
        (draw,) = function.find_ops(op_type="random_categorical")
        assert draw.mode.val == "probs"
        assert draw.x.op.op_type == "real_div"
        assert draw.x.op.y.op.op_type == "reduce_sum"
        (output,) = function.outputs
        assert tuple(output.shape) == tuple(DRAWS[name](WEIGHTS).shape)


def test_drawing_several_without_replacement_is_refused():
    for program in programs(lambda w: torch.multinomial(w, 2), (WEIGHTS,)).values():
        with pytest.raises(NotImplementedError, match="without replacement"):
            to_mil(program)
