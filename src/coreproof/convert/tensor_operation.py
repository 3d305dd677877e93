"""Converters of the tensor_operation family."""
