"""Layouts: views are no layout, channels-last tensors are one that Core ML does not have."""

import pytest
import torch
from lowered import lower_and_check, places
from torch import nn

IMAGE = torch.randint(-8, 8, (1, 3, 6, 4)).float()


def net():
    made = nn.Conv2d(3, 4, 3)
    nn.init.constant_(made.weight, 0.5)  # halves and small integers: every order of summation gives the same value
    nn.init.zeros_(made.bias)
    return made


FORMS = {
    "input": (lambda m, x: m.net(x).relu(), IMAGE.to(memory_format=torch.channels_last)),
    "copy": (lambda m, x: m.net(x.to(memory_format=torch.channels_last)).relu(), IMAGE),
    "copy and back": (lambda m, x: m.net(x.to(memory_format=torch.channels_last)).contiguous() * 2, IMAGE),
}


@pytest.mark.parametrize("name", FORMS)
def test_channels_last_lowers(name):
    function, image = FORMS[name]
    lower_and_check(function, (image,), members={"net": net()})


def test_attention_on_permuted_views_is_kept_whole():
    def attend(m, x):
        q, k, v = x.view(1, 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        return nn.functional.scaled_dot_product_attention(q, k, v)

    placed = places(lower_and_check(attend, (torch.randn(1, 5, 24),)))
    assert placed["scaled_dot_product_attention.default"] == [0]
