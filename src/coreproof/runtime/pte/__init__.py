"""Whole ExecuTorch programs (`.pte`) on torch, on any operating system."""

from __future__ import annotations

from .runner import PteProgram, is_pte

__all__ = ["PteProgram", "is_pte"]
