"""Converters of the reduction family."""
