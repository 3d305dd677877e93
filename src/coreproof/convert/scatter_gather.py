"""Converters of the scatter_gather family."""
