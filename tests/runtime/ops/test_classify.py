"""The class label and the probabilities of a classifier, for labels of both types, from a program and from a file's."""

import coremltools as ct
import numpy as np
import pytest
import torch
from op_run import run

from coreproof.runtime import load


class Probabilities(torch.nn.Module):
    def forward(self, x):
        return x / x.sum()


@pytest.mark.parametrize("labels", [["cat", "dog", "cow"], [70, 80, 2**40]])
def test_label_and_probabilities(labels):
    traced = torch.jit.trace(Probabilities().eval(), torch.ones(1, 3))
    model = ct.convert(
        traced, inputs=[ct.TensorType("x", (1, 3))], classifier_config=ct.ClassifierConfig(labels),
        minimum_deployment_target=ct.target.iOS16, compute_precision=ct.precision.FLOAT32, skip_model_load=True,
    )  # fmt: skip
    for form in (model, model._mil_program):
        label, probabilities = load(form).predict({"x": np.float32([[1, 2, 5]])}).values()
        assert label == labels[2]
        assert probabilities == dict(zip(labels, [0.125, 0.25, 0.625], strict=True))


def test_as_many_classes_as_probabilities():
    with pytest.raises(ValueError, match="2 classes for 3 probabilities"):
        run("classify", probabilities=torch.ones(3), classes=["a", "b"])
