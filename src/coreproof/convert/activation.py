"""Converters of the activation family."""
