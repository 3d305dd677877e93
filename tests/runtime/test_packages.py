"""Reading weight files, packages and delegates: values as written, and one clear error for anything broken."""

import json
import shutil
import struct

import coremltools as ct
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Builder as mb
from coremltools.libmilstoragepython import _BlobStorageWriter
from lowered import lower
from pte import delegates

from coreproof.errors import InputError, ModelError, UnsupportedFileError
from coreproof.runtime import load
from coreproof.runtime.blob import Blob
from coreproof.runtime.dtypes import element_type
from coreproof.runtime.ir import Constant
from coreproof.runtime.package import Flattened

WEIGHT = np.arange(40 * 30, dtype=np.float32).reshape(40, 30) / 100 - 5
X = np.linspace(-1, 1, 60, dtype=np.float32).reshape(2, 30)

# For each element type: the writer's method, and values at the limits of the type.
WRITTEN = {
    "fp32": ("write_float_data", np.array([1.5, -0.0, 3e38], np.float32)),
    "int32": ("write_int32_data", np.array([-(2**31), 2**31 - 1, 7], np.int32)),
    "int16": ("write_int16_data", np.array([-(2**15), 2**15 - 1, 7], np.int16)),
    "uint16": ("write_uint16_data", np.array([0, 2**16 - 1, 7], np.uint16)),
    "int8": ("write_int8_data", np.array([-128, 127, 7], np.int8)),
    "uint8": ("write_uint8_data", np.array([0, 255, 7], np.uint8)),
    "int4": ("write_int4_data", np.array([-8, 7, -1, 3, 2], np.int8)),
    "uint4": ("write_uint4_data", np.array([0, 15, 9, 3, 2], np.uint8)),
    "uint6": ("write_uint6_data", np.array([0, 63, 33, 5, 2], np.uint8)),
    "uint3": ("write_uint3_data", np.array([0, 7, 5, 3, 2], np.uint8)),
    "uint2": ("write_uint2_data", np.array([0, 3, 1, 2, 2], np.uint8)),
    "uint1": ("write_uint1_data", np.array([0, 1, 1, 0, 1], np.uint8)),
}


@pytest.mark.parametrize("dtype", WRITTEN)
def test_a_blob_is_read_as_coremltools_wrote_it(dtype, tmp_path):
    method, values = WRITTEN[dtype]
    path = tmp_path / "weight.bin"
    writer = _BlobStorageWriter(str(path), True)
    offset = getattr(writer, method)(values)
    del writer
    for source in (path, path.read_bytes(), b"x" + path.read_bytes()):
        if source == b"x" + path.read_bytes():
            source = memoryview(source)[1:]  # not aligned, as inside a delegate
        got = Blob(source, "weight.bin").tensor(offset, element_type(dtype), (len(values),))
        assert got.tolist() == values.tolist()


def _blob(tmp_path):
    path = tmp_path / "weight.bin"
    writer = _BlobStorageWriter(str(path), True)
    offset = writer.write_float_data(np.ones(3, np.float32))
    del writer
    return bytearray(path.read_bytes()), offset


@pytest.mark.parametrize(
    "position, value, text",
    [
        (4, struct.pack("<I", 1), "version 1"),
        (64, struct.pack("<I", 0), "no blob starts here"),
        (68, struct.pack("<I", 4), "holds int8; the program declares fp32"),
        (72, struct.pack("<Q", 2**62), "beyond the file"),
        (72, struct.pack("<Q", 8), "do not hold the declared"),
        (80, struct.pack("<Q", 2**63), "beyond the file"),
        (88, struct.pack("<Q", 5), "do not hold the declared"),
    ],
)
def test_altered_metadata_is_one_error(position, value, text, tmp_path):
    data, offset = _blob(tmp_path)
    data[position : position + len(value)] = value
    with pytest.raises(ModelError, match=text):
        Blob(bytes(data), "weight.bin").tensor(offset, element_type("fp32"), (3,))


@pytest.mark.parametrize("length", [0, 10, 64, 100, 130])
def test_a_truncated_blob_is_one_error(length, tmp_path):
    data, offset = _blob(tmp_path)
    with pytest.raises(ModelError, match=r"weight\.bin"):
        Blob(bytes(data[:length]), "weight.bin").tensor(offset, element_type("fp32"), (3,))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    @mb.program(input_specs=[mb.TensorSpec(shape=(2, 30))], opset_version=ct.target.iOS17)
    def program(x):
        return mb.linear(x=x, weight=WEIGHT, name="y")

    model = ct.convert(
        program, minimum_deployment_target=ct.target.iOS17, compute_precision=ct.precision.FLOAT32, skip_model_load=True
    )
    path = tmp_path_factory.mktemp("package") / "model.mlpackage"
    model.save(str(path))
    return path


def test_a_package_an_mlmodel_and_a_program_give_the_same(package):
    expected = X @ WEIGHT.T
    for source in (package, str(package), ct.models.MLModel(str(package), skip_model_load=True)):
        # 30 products of values below 6: 30 roundings of 2**-24 relative to 180 stay under 4e-4.
        np.testing.assert_allclose(load(source).predict({"x": X})["y"], expected, rtol=0, atol=4e-4)


def test_weights_are_mapped_and_not_copied(package):
    (function,) = load(package).program.functions.values()
    given = [one for op in function.body.operations for operands in op.inputs.values() for one in operands]
    filed = [one for one in given if isinstance(one, Constant) and one.source.startswith("weights/weight.bin")]
    (weight,) = [one for one in filed if one.bytes == WEIGHT.nbytes]
    assert weight.load().data_ptr() == weight.load().data_ptr()  # two copies would lie in two places


@pytest.mark.parametrize("name", ["../../../../secret.bin", "/etc/passwd", "..\\..\\..\\secret.bin"])
def test_a_weight_file_outside_the_package_is_refused(package, name, tmp_path):
    copy = tmp_path / "model.mlpackage"
    shutil.copytree(package, copy)
    model = copy / "Data/com.apple.CoreML/model.mlmodel"
    spec = ct.utils.load_spec(str(copy))
    block = spec.mlProgram.functions["main"].block_specializations["CoreML7"]
    for op in block.operations:
        if op.type == "const" and op.attributes["val"].WhichOneof("value") == "blobFileValue":
            op.attributes["val"].blobFileValue.fileName = f"@model_path/{name}"
    model.write_bytes(spec.SerializeToString())
    with pytest.raises(ModelError, match="outside the package"):
        load(copy)


def test_a_manifest_that_leads_outside_is_refused(package, tmp_path):
    copy = tmp_path / "model.mlpackage"
    shutil.copytree(package, copy)
    manifest = json.loads((copy / "Manifest.json").read_text())
    manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"] = "../../secret.mlmodel"
    (copy / "Manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="outside the package"):
        load(copy)


@pytest.fixture(scope="module")
def delegate():
    weight = torch.from_numpy(WEIGHT)
    (data,) = delegates(
        lower(
            lambda m, x: torch.nn.functional.linear(x, m.weight),
            (torch.from_numpy(X),),
            members={"weight": weight},
            compute_precision="float32",
        ).pte
    )
    return data


def test_a_delegate_runs_from_its_bytes(delegate):
    (got,) = load(delegate).predict({"inputs_0": X}).values()
    np.testing.assert_allclose(got, X @ WEIGHT.T, rtol=0, atol=4e-4)


def test_altered_and_truncated_delegates_are_one_error(delegate):
    """Seeded: each byte string may still load and run, or is refused with an error of ours."""
    generator = np.random.default_rng(0)
    refused = 0
    for case in range(150):
        data = bytearray(delegate)
        if case % 3 == 0:
            data = data[: generator.integers(len(data))]
        for position in generator.integers(0, max(1, len(data)), 8):
            if data:
                data[position] = generator.integers(256)
        try:
            load(bytes(data)).predict({"inputs_0": X})
        except (ModelError, InputError):
            refused += 1
    assert refused > 50


def test_a_name_in_a_delegate_cannot_leave_it(delegate):
    files = Flattened(delegate)
    data = bytes(delegate).replace(b'"nosj.tsefinaM"', b'"nosj.tsef/naM"')
    assert any(path.endswith("Manifest.json") for path in files.paths)
    with pytest.raises(ModelError, match="names a file"):
        load(data)


def test_other_kinds_of_models_are_named(tmp_path):
    compiled = tmp_path / "m.mlmodelc"
    compiled.mkdir()
    with pytest.raises(UnsupportedFileError, match="compiled Core ML model"):
        load(compiled)
    spec = ct.proto.Model_pb2.Model()
    spec.neuralNetwork.SetInParent()
    (tmp_path / "n.mlmodel").write_bytes(spec.SerializeToString())
    with pytest.raises(UnsupportedFileError, match="neuralNetwork"):
        load(tmp_path / "n.mlmodel")
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "absent.mlpackage")
    (tmp_path / "text.mlmodel").write_text("hello")
    with pytest.raises(ModelError, match="not a Core ML model"):
        load(tmp_path / "text.mlmodel")
    with pytest.raises(InputError, match="cannot load a int"):
        load(3)
