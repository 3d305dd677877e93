"""Torch op to MIL: our converters where coremltools is wrong or silent, and the conversion of one program."""
