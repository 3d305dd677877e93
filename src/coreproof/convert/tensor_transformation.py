"""Converters of the tensor_transformation family."""
