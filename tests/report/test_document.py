from __future__ import annotations

import json
from pathlib import Path

from coreproof.errors import InputError
from coreproof.partition.record import (
    BufferPlacement,
    MethodPlacement,
    Narrowing,
    NodePlacement,
    Partition,
    Placement,
    Refusal,
    Unproven,
)
from coreproof.report.document import error_document, placement_document
from coreproof.version import __version__


def placement() -> Placement:
    return Placement(
        decode=MethodPlacement(
            nodes=[NodePlacement("mul", "aten.mul.Tensor", 0, "a.py:1", "head"), NodePlacement("x", "aten.x", None)],
            partitions=[Partition(0, 1, ("float32[1,n]",), ("float32[1,n]",))],
            refusals=[Refusal("dtype", "no complex64", "aten.x", "x", "a.py:2", "head", "f: complex64[1]")],
            buffers=[BufferPlacement("cache", "state", "float16", (1, "n"), 0)],
            narrowings=[Narrowing("arange", "aten.arange", "int64", "int32", "a.py:3")],
            unproven=[Unproven("rand", "aten.rand", "its values are random", "a.py:4")],
            seconds=0.25,
        )
    )


def test_the_document_survives_json_and_holds_every_record():
    document = json.loads(json.dumps(placement_document(placement(), source="a.py:f")))
    assert document == {
        "schema": 1,
        "coreproof": __version__,
        "source": "a.py:f",
        "share": 0.5,
        "delegates": 1,
        "methods": {
            "decode": {
                "share": 0.5,
                "on_coreml": 1,
                "nodes": [
                    {"node": "mul", "op": "aten.mul.Tensor", "partition": 0, "source": "a.py:1", "module": "head"},
                    {"node": "x", "op": "aten.x", "partition": None, "source": "", "module": ""},
                ],
                "partitions": [{"id": 0, "ops": 1, "inputs": ["float32[1,n]"], "outputs": ["float32[1,n]"]}],
                "refusals": [
                    {
                        "rule": "dtype",
                        "reason": "no complex64",
                        "op": "aten.x",
                        "node": "x",
                        "source": "a.py:2",
                        "module": "head",
                        "tensor": "f: complex64[1]",
                        "evidence": "",
                    }
                ],
                "buffers": [
                    {
                        "name": "cache",
                        "kind": "state",
                        "dtype": "float16",
                        "shape": [1, "n"],
                        "partition": 0,
                        "reason": "",
                    }
                ],
                "narrowings": [
                    {
                        "node": "arange",
                        "op": "aten.arange",
                        "from_dtype": "int64",
                        "to_dtype": "int32",
                        "source": "a.py:3",
                    }
                ],
                "unproven": [
                    {"node": "rand", "op": "aten.rand", "reason": "its values are random", "source": "a.py:4"}
                ],
                "seconds": 0.25,
            }
        },
    }


def test_an_error_without_refusals():
    assert error_document(InputError("bad"))["error"] == {
        "type": "InputError",
        "message": "bad",
        "exit_code": 2,
        "refusals": [],
    }


def test_the_documentation_names_every_entry():
    text = (Path(__file__).parents[2] / "docs" / "placement-json.md").read_text()

    def keys(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from () if key == "decode" else (key,)
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    documents = [placement_document(placement()), error_document(InputError("bad"))]
    assert {key for document in documents for key in keys(document) if f"`{key}`" not in text} == set()
