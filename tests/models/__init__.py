"""Small models of the kinds that coreproof is for, written from the descriptions of their architectures.

`MODELS[name]()` returns `(module, inputs, dynamic_shapes)`, seeded, in eval mode.
Camera frames are uint8 with their channels last, as a camera gives them.
"""

from __future__ import annotations

from .act import act
from .decoder import decoder_decode, decoder_decode_copy, decoder_prefill, decoder_prefill_copy
from .diffusion import diffusion
from .dit import multitask_dit
from .pi05 import pi05
from .smolvlm import smolvlm_vision
from .vqbet import vqbet, vqbet_sampled

MODELS = {
    builder.__name__: builder
    for builder in (
        act,
        diffusion,
        vqbet,
        vqbet_sampled,
        multitask_dit,
        pi05,
        smolvlm_vision,
        decoder_decode,
        decoder_decode_copy,
        decoder_prefill,
        decoder_prefill_copy,
    )
}
