"""A placement as a JSON document; `docs/placement-json.md` describes it for its readers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..errors import CoreproofError
from ..partition.record import MethodPlacement, Placement
from ..version import __version__

SCHEMA = 1


def placement_document(placement: Placement, **context: Any) -> dict[str, Any]:
    """The document of a placement, made of plain values that `json.dumps` takes.

    Args:
        placement: as `coreproof.lower` and `coreproof.plan` return it.
        context: further top-level entries, for instance the command's `source`, `options` and `output`.
    """
    return {
        "schema": SCHEMA,
        "coreproof": __version__,
        **context,
        "share": placement.share,
        "delegates": placement.delegates,
        "methods": {name: _method(method) for name, method in placement.items()},
    }


def error_document(error: CoreproofError) -> dict[str, Any]:
    """The document of a run that ended with one of coreproof's own errors."""
    return {
        "schema": SCHEMA,
        "coreproof": __version__,
        "error": {
            "type": type(error).__name__,
            "message": str(error),
            "exit_code": error.exit_code,
            "refusals": [asdict(refusal) for refusal in getattr(error, "refusals", ())],
        },
    }


def _method(method: MethodPlacement) -> dict[str, Any]:
    return {"share": method.share, "on_coreml": method.on_coreml, **asdict(method)}
