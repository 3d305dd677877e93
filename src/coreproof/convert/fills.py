"""Converters of the fills family."""
