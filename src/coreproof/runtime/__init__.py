"""The reference runtime: Core ML programs on torch, on any operating system."""

from __future__ import annotations

from .check import Finding, check
from .coremltools_predict import coremltools_predict
from .load import load, read_program
from .model import Model, ModelState
from .pte import PteProgram

__all__ = ["Finding", "Model", "ModelState", "PteProgram", "check", "coremltools_predict", "load", "read_program"]
