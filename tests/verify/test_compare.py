"""Metrics by hand, and the rule that turns them into an outcome."""

import math

import pytest
import torch

from coreproof.errors import InputError
from coreproof.verify.compare import DECLARED, EXACT, Tolerance, check_output, is_within, metrics, tolerance
from coreproof.verify.inputs import cases

inf, nan = math.inf, math.nan
ONES = torch.tensor([1.0, -2.0, 4.0])


class Nothing:
    def stored(self):
        return None

    def noise(self):
        return 0.0


def outcome(expected, exact, declared=None, limits=None, witness=None):
    declared = exact if declared is None else declared
    return check_output(
        "output 0", "example", 0, expected, exact, declared, limits or Tolerance(), witness or Nothing()
    )


def test_metrics():
    of = metrics(torch.tensor([1.5, -2.0, 3.0]), ONES)
    # Differences 0.5, 0, 1; squares sum to 1.25, those of the expected values to 21.
    assert (of.max_abs, of.max_rel, of.mean_abs) == (1.0, 0.5, 0.5)
    assert of.snr_db == pytest.approx(10 * math.log10(21 / 1.25))
    assert of.cosine == pytest.approx((1.5 + 4 + 12) / math.sqrt(21 * (2.25 + 4 + 9)))


def test_values_that_are_not_finite():
    expected = torch.tensor([inf, nan, -inf, 1.0])
    same = metrics(expected.clone(), expected)
    assert (same.max_abs, same.snr_db, same.nonfinite) == (0.0, inf, (3, 3))
    assert metrics(torch.tensor([1.0, nan, -inf, 1.0]), expected).max_abs == inf
    assert metrics(torch.tensor([-inf, nan, -inf, 1.0]), expected).max_abs == inf
    assert metrics(torch.zeros(0), torch.zeros(0)).max_abs == 0.0


def test_a_difference_is_held_against_the_greatest_value():
    assert is_within(ONES + 0.039, ONES, 0.01)  # 0.04 allowed
    assert not is_within(ONES + 0.041, ONES, 0.01)
    masked = torch.tensor([torch.finfo(torch.float32).min, 1.0])
    assert not is_within(masked + torch.tensor([0.0, 0.1]), masked, 0.01)


def test_integers_are_equal_or_wrong():
    assert outcome(torch.tensor([3, 4]), torch.tensor([3, 4])).outcome == "match"
    assert outcome(torch.tensor([3, 4]), torch.tensor([3, 5])).outcome == "mismatch"
    assert outcome(torch.tensor([3, 4]), torch.tensor([3, 4]), torch.tensor([3, 5])).outcome == "precision"


@pytest.mark.parametrize("got", [ONES.double(), ONES[None], torch.tensor([1, -2, 4]), None, 1.0])
def test_another_type_or_shape_is_a_mismatch(got):
    found = outcome(ONES, got)
    assert found.outcome == "mismatch" and found.problem.startswith("expected ")


def test_exact_mode_decides_about_the_conversion_and_declared_mode_about_precision():
    step = 4 * EXACT
    assert outcome(ONES, ONES + step * 0.9).outcome == "match"
    assert outcome(ONES, ONES + step * 1.1).outcome == "mismatch"
    assert outcome(ONES, ONES.clone(), ONES + 4 * DECLARED * 0.9).outcome == "match"
    assert outcome(ONES, ONES.clone(), ONES + 4 * DECLARED * 1.1).outcome == "precision"
    assert outcome(ONES, ONES.clone(), ONES * inf).outcome == "precision"
    assert outcome(ONES, ONES + 0.1, limits=tolerance(0.1)).outcome == "match"
    assert outcome(ONES, ONES + 0.1, limits=tolerance(0.0, 0.11)).outcome == "match"


def test_a_tanh_gelu_beside_an_exact_one_is_beyond_the_tolerance():
    x = torch.linspace(-4, 4, 1001)
    exact, tanh = torch.nn.functional.gelu(x), torch.nn.functional.gelu(x, approximate="tanh")
    assert 4.6e-4 < float((exact - tanh).abs().max()) < 4.8e-4
    assert outcome(tanh, exact).outcome == "mismatch"


def test_torchs_own_error_and_rounded_constants_are_no_fault():
    class Noisy(Nothing):
        def noise(self):
            return 0.01

    class Stored(Nothing):
        def __init__(self, value):
            self.value = value

        def stored(self):
            return self.value

    assert outcome(ONES, ONES + 0.15, witness=Noisy()).outcome == "match"  # 16 times 0.01 allowed
    assert outcome(ONES, ONES + 0.17, witness=Noisy()).outcome == "mismatch"
    rounded = outcome(ONES, ONES + 0.001, witness=Stored(ONES + 0.001))
    assert rounded.outcome == "match" and rounded.settled
    doubtful = outcome(ONES, ONES + 0.002, witness=Stored(ONES + 0.001))
    assert doubtful.outcome == "match" and not doubtful.settled
    assert outcome(ONES, ONES + 0.2, witness=Stored(ONES + 0.001)).outcome == "mismatch"


def test_bad_tolerances():
    for given in (-1.0, nan):
        with pytest.raises(InputError):
            tolerance(given)


def test_variations_are_seeded_and_like_the_example():
    example = ((torch.full((50,), -3.0), torch.tensor([4, 7]), torch.zeros(64, dtype=torch.bool), 5), {})

    def made(seed):
        return cases(example, steps=2, variations=2, seed=seed, usable=lambda case: True)

    first, again, other = made(0), made(0), made(1)
    assert [case.name for case in first] == ["example", "variation 1", "variation 2"]
    floats, integers, bools, number = first[1].calls[0][0]
    assert floats.min() < 0 < floats.max() and 2 < floats.square().mean().sqrt() < 4
    assert set(integers.tolist()) <= {4, 5, 6, 7} and 0 < bools.sum() < 64 and number == 5
    assert torch.equal(floats, again[1].calls[0][0][0]) and not torch.equal(floats, other[1].calls[0][0][0])
    assert not torch.equal(floats, first[1].calls[1][0][0])


def test_what_the_model_does_not_take_is_no_variation():
    example = ((torch.full((9,), 2.0),), {})

    def usable(case):
        return all(bool((call[0][0] > 0).all()) for call in case.calls)

    _, varied = cases(example, steps=1, variations=1, seed=0, usable=usable)
    assert bool((varied.calls[0][0][0] > 0).all())
    assert len(cases(example, steps=1, variations=1, seed=0, usable=lambda case: False)) == 1
