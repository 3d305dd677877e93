"""Reading `.pte` files: what ExecuTorch itself reads, and one clear error for anything broken."""

import random
import struct
import time

import executorch.exir.schema as schema
import pytest
import torch
from executorch.exir import to_edge
from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary
from torch import nn
from torch.export import Dim, export

from coreproof.errors import CoreproofError, ModelError, UnsupportedFileError
from coreproof.runtime import load
from coreproof.runtime.pte import program as ir
from coreproof.runtime.pte.file import read_pte

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Small(nn.Module):
    """A little of everything: constants, a mutable buffer, sizes that change, lists, numbers, control flow."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("kept", torch.zeros(3))

    def forward(self, x):
        rows = x.shape[0]
        self.kept.add_(self.linear(x).mean(0))
        chosen = torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))
        padded = nn.functional.pad(x.repeat(2, 3), (1, 2))
        return chosen * rows, self.kept * 2, torch.arange(rows), padded, torch.split(x, 2, 1)[1]


@pytest.fixture(scope="module")
def pte():
    with torch.no_grad():
        module = Small().eval().requires_grad_(False)
        exported = export(module, (X,), dynamic_shapes=({0: Dim("rows", min=1, max=7)},))
        return bytes(to_edge(exported).to_executorch().buffer)


def test_every_field_is_read_as_executorch_reads_it(pte):
    (plan,) = deserialize_pte_binary(pte).program.execution_plan
    method = read_pte(memoryview(pte)).methods[plan.name]
    assert list(method.inputs) == plan.inputs
    assert list(method.outputs) == plan.outputs
    assert list(method.buffer_sizes) == plan.non_const_buffer_sizes
    assert list(method.operators) == [f"{op.name}.{op.overload}" if op.overload else op.name for op in plan.operators]
    assert len(method.values) == len(plan.values)
    for got, expected in zip(method.values, plan.values, strict=True):
        _same_value(got, expected.val)
    for chain, wanted in zip(method.chains, plan.chains, strict=True):
        assert [_plain(one) for one in chain] == [_plain(one.instr_args) for one in wanted.instructions]


def _same_value(got, expected):
    if isinstance(got, ir.TensorSpec):
        planned = expected.allocation_info
        assert got.sizes == tuple(expected.sizes)
        assert got.dim_order == tuple(expected.dim_order)
        assert got.dynamism == ("static", "bounded", "unbounded")[expected.shape_dynamism]
        assert got.planned == (planned and (planned.memory_id, planned.memory_offset))
        assert (got.data is not None) == (expected.data_buffer_idx > 0)
    elif isinstance(got, ir.Scalar):
        assert got.value == next(iter(vars(expected).values()), None)
    else:
        assert list(got.items) == [
            None if one == -1 and isinstance(got, ir.TensorList) else one for one in expected.items
        ]


def _plain(instruction):
    return type(instruction).__name__, *(tuple(v) if isinstance(v, list) else v for v in vars(instruction).values())


def _changed(pte, change):
    """The file again, after `change` of the program that it holds."""
    file = deserialize_pte_binary(pte)
    change(file.program, file.program.execution_plan[0])
    return bytes(serialize_pte_binary(PTEFile(file.program), extract_delegate_segments=True))


def _tensor(plan, number=0):
    return [one.val for one in plan.values if isinstance(one.val, schema.Tensor) and one.val.allocation_info][number]


def _instruction(plan, kind):
    return next(one.instr_args for one in plan.chains[0].instructions if isinstance(one.instr_args, kind))


def _set(target, **fields):
    for name, value in fields.items():
        setattr(target, name, value)


CHANGES = {
    "inputs": (lambda p, e: e.inputs.__setitem__(0, 999), r"inputs\[0\]: number 999 of \d+ values"),
    "outputs": (lambda p, e: e.outputs.__setitem__(0, -1), r"outputs\[0\]: number -1 of \d+ values"),
    "dtype": (lambda p, e: _set(_tensor(e), scalar_type=schema.ScalarType.QINT8), r"scalar_type: 12 is no dtype"),
    "sizes": (lambda p, e: _set(_tensor(e), sizes=[-1, 4]), r"sizes: \[-1, 4\]; expected"),
    "huge sizes": (lambda p, e: _set(_tensor(e), sizes=[2**31 - 1] * 2), r"GiB; at most"),
    "rank": (lambda p, e: _set(_tensor(e), sizes=[1] * 17), r"sizes: .* expected at most 16"),
    "dim order": (lambda p, e: _set(_tensor(e), dim_order=[0, 0]), r"dim_order: \[0, 0\] is no order of 2"),
    "memory": (lambda p, e: _set(_tensor(e).allocation_info, memory_id=5), r"memory_id: 5; expected 1 to 1"),
    "offset": (
        lambda p, e: _set(_tensor(e).allocation_info, memory_offset_high=1),
        r"memory_offset: bytes \d+ to \d+ of a buffer of \d+",
    ),
    "alignment": (lambda p, e: _set(_tensor(e).allocation_info, memory_offset_low=1), r"byte 1 is not aligned"),
    "buffer": (lambda p, e: e.non_const_buffer_sizes.__setitem__(1, 2**60), r"non_const_buffer_sizes: .* GiB"),
    "constant": (
        lambda p, e: _set([v.val for v in e.values if getattr(v.val, "data_buffer_idx", 0)][0], data_buffer_idx=99),
        r"data_buffer_idx: number 99 of \d+ constants",
    ),
    "operator": (lambda p, e: _set(_instruction(e, schema.KernelCall), op_index=99), r"op_index: number 99 of"),
    "operand": (lambda p, e: _instruction(e, schema.KernelCall).args.__setitem__(0, 999), r"args\[0\]: number 999"),
    "jump": (
        lambda p, e: _set(_instruction(e, schema.JumpFalseCall), destination_instruction=999),
        r"destination_instruction: number 999 of \d+ instructions",
    ),
    "twice": (lambda p, e: p.execution_plan.append(e), r"a second method named 'forward'"),
    "no method": (lambda p, e: p.execution_plan.clear(), r"the file has no method"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_field_is_named(pte, name):
    change, message = CHANGES[name]
    changed = _changed(pte, change)
    with pytest.raises(ModelError, match=message):
        load(changed)


def test_a_loop_without_end_is_stopped(pte):
    def change(program, plan):
        jump = _instruction(plan, schema.JumpFalseCall)
        at = [one.instr_args for one in plan.chains[0].instructions].index(jump)
        plan.values.append(schema.EValue(schema.Bool(False)))
        _set(jump, destination_instruction=at, cond_value_index=len(plan.values) - 1)

    with pytest.raises(ModelError, match="the loop goes on for more than"):
        load(_changed(pte, change)).run(X)


def test_a_constant_is_never_written(pte):
    def change(program, plan):
        constant = next(i for i, v in enumerate(plan.values) if getattr(v.val, "data_buffer_idx", 0))
        call = _instruction(plan, schema.KernelCall)
        call.args[-2:] = [constant, constant]

    changed = _changed(pte, change)
    before = bytes(changed)
    with pytest.raises(ModelError, match="it writes a constant"):
        load(changed).run(X)
    assert changed == before


def test_a_number_that_asks_for_a_huge_tensor(pte):
    def change(program, plan):
        for value in plan.values:
            if isinstance(value.val, schema.Int) and value.val.int_val == 3:
                value.val.int_val = 2**40

    start = time.monotonic()
    with pytest.raises(ModelError, match=r"aten::repeat.out\): it makes shape \[.*\]; expected"):
        load(_changed(pte, change)).run(X)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("name", ["aten::from_file.out", "aten::resize_", "prim::Print", "os::system.out"])
def test_operators_that_no_program_may_reach(pte, name):
    def change(program, plan):
        qualified, _, overload = name.partition(".")
        _set(plan.operators[0], name=qualified, overload=overload)

    with pytest.raises(ModelError, match=r"instruction \d+ \("):
        load(_changed(pte, change)).run(X)


def test_another_backend_is_unsupported(pte):
    def change(program, plan):
        program.backend_delegate_data.append(schema.BackendDelegateInlineData(b"xyz"))
        at = schema.BackendDelegateDataReference(schema.DataLocation.INLINE, len(program.backend_delegate_data) - 1)
        plan.delegates.append(schema.BackendDelegate("XnnpackBackend", at, []))

    program = load(_changed(pte, change))
    assert program.delegates == [b"xyz"]
    with pytest.raises(UnsupportedFileError, match=r"delegate 0: made for the backend 'XnnpackBackend'"):
        program.run(X)


def test_tables_that_unfold_to_a_huge_program():
    """A list of many references to one list of many references to one: small, and quadratic to read."""
    data = bytearray(struct.pack("<I4s", 8, b"ET12"))
    data += b"\0" * 4096
    size = len(data)
    data += struct.pack("<I", 900) + b"\0" * 3600  # a vector of 900 offsets
    with pytest.raises(ModelError):
        load(bytes(data))
    assert size


def test_truncated_files(pte):
    for cut in range(0, len(pte), 41):
        with pytest.raises(CoreproofError):
            load(pte[:cut])


def test_altered_files_give_a_result_or_one_clear_error(pte):
    """Some bytes of the program are set to others; what comes is a run or a CoreproofError with a one-line message."""
    (size,) = struct.unpack_from("<Q", pte, 16)
    generator = random.Random(20)
    ran = 0
    for _ in range(600):
        altered = bytearray(pte)
        for _ in range(generator.choice((1, 1, 1, 2, 5))):
            at = generator.randrange(size)
            flipped = altered[at] ^ 1 << generator.randrange(8)
            altered[at] = generator.choice((0, 127, 128, 255, generator.randrange(256), flipped))
        start = time.monotonic()
        try:
            load(bytes(altered)).run(X)
            ran += 1
        except CoreproofError as error:
            assert "\n" not in str(error)
        assert time.monotonic() - start < 5
    assert 20 < ran < 400  # most alterations hit something that matters, and not all do
