from __future__ import annotations

import torch
from rewrite.checks import Model, check, ops


def test_checks_of_a_whole_mask_use_the_public_ops():
    def run(self, x):
        aten = torch.ops.aten
        return aten._is_all_true.default(x > 0), aten._is_any_true.default(x > 0)

    positive, mixed, negative = torch.tensor([1.0, 2.0]), torch.tensor([1.0, -2.0]), torch.tensor([-1.0, -2.0])
    new, *_ = check(Model(run), (positive,), (mixed,), (negative,))
    assert {"aten.all.default", "aten.any.default"} <= set(ops(new))
    assert not any("_is_a" in op for op in ops(new))
