"""`MLModel.predict` and `make_state` on any operating system, for code that was not written for coreproof.

This module changes coremltools' class for as long as the context lasts, and
nowhere else. It can go once coremltools predicts off macOS (ct#1151 and others
ask for it).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coremltools.models import MLModel

from .interpreter import Mode
from .load import load
from .model import Model, ModelState


@contextmanager
def coremltools_predict(mode: Mode = "declared") -> Iterator[None]:
    """Serve `MLModel.predict` and `MLModel.make_state` from the reference runtime in the body.

    Args:
        mode: as `load` takes it.

    Raises:
        CoreproofError: from `predict`, as `Model.predict` raises it.
    """
    loaded: weakref.WeakKeyDictionary[MLModel, Model] = weakref.WeakKeyDictionary()

    def model_of(mlmodel: MLModel) -> Model:
        if mlmodel not in loaded:
            loaded[mlmodel] = load(mlmodel, mode=mode)
        return loaded[mlmodel]

    def predict(self: MLModel, data: Any, state: ModelState | None = None) -> Any:
        model = model_of(self)
        if isinstance(data, list):
            return [model.predict(one, function_name=self.function_name) for one in data]
        return model.predict(data, state, function_name=self.function_name)

    def make_state(self: MLModel) -> ModelState:
        return model_of(self).make_state(self.function_name)

    replaced = {"predict": MLModel.predict, "make_state": MLModel.make_state}
    MLModel.predict, MLModel.make_state = predict, make_state
    try:
        yield
    finally:
        for name, original in replaced.items():
            setattr(MLModel, name, original)
