"""Converters of the linear family."""
