"""Converters of the normalization family."""
