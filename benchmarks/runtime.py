"""The reference runtime beside eager torch on one thread: `python benchmarks/runtime.py`.

Printed are the best of several alternating runs of each side and their ratio:
a ResNet-50-shaped network, a 12-layer transformer and one decode step of a
small language model with state, in exact mode (a float32 program) and declared
float16; then what loading a 300 MB model adds to resident memory before its
first run, and the time of chains of 1,000 and 10,000 ops.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from lowering import _resident, build
from torch import nn

LIMITS = {"exact": 1.2, "declared": 2.5, "decode": 1.5}


class ResNet(nn.Module):
    """ResNet-50's shape: bottleneck blocks of 3, 4, 6 and 3, on 224 by 224 pixels."""

    class Bottleneck(nn.Module):
        def __init__(self, ins: int, width: int, stride: int) -> None:
            super().__init__()
            outs = width * 4
            self.body = nn.Sequential(
                nn.Conv2d(ins, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, outs, 1, bias=False), nn.BatchNorm2d(outs),
            )  # fmt: skip
            short = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))
            self.short = short if stride != 1 or ins != outs else nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(x) + self.short(x))

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        ins = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(count):
                blocks.append(self.Bottleneck(ins, width, stride if number == 0 else 1))
                ins = width * 4
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(ins, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Decoder(nn.Module):
    """One step of a small language model: 8 layers of 512, a cache of 256 positions as mutable buffers."""

    def __init__(self, layers: int = 8, width: int = 512, heads: int = 8, length: int = 256) -> None:
        super().__init__()
        self.heads, self.layers = heads, layers
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        for layer in range(layers):
            self.register_buffer(f"k{layer}", torch.zeros(1, heads, length, width // heads))
            self.register_buffer(f"v{layer}", torch.zeros(1, heads, length, width // heads))

    def forward(self, x: torch.Tensor, position: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in range(self.layers):
            split = self.qkv[layer](self.norm[2 * layer](x)).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            q, k, v = split.unbind(0)
            keys, values = getattr(self, f"k{layer}"), getattr(self, f"v{layer}")
            keys.index_copy_(2, position, k)
            values.index_copy_(2, position, v)
            mixed = nn.functional.scaled_dot_product_attention(q, keys, values, mask)
            x = x + self.out[layer](mixed.transpose(1, 2).reshape(1, 1, -1))
            x = x + self.down[layer](nn.functional.gelu(self.up[layer](self.norm[2 * layer + 1](x))))
        return x


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side (default 5)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print(f"{'model':14} {'mode':9} {'runtime / eager (ms)':>22} {'ratio':>6} {'limit':>6}")
    for name, (model, inputs) in {"resnet50": (ResNet().eval(), (torch.randn(1, 3, 224, 224),))}.items():
        compare(name, model, inputs, arguments.rounds)
    compare("transformer12", *build("transformer12"), arguments.rounds)
    position, mask = torch.tensor([7]), torch.zeros(1, 1, 1, 256)
    compare("decode step", Decoder().eval(), (torch.randn(1, 1, 512), position, mask), arguments.rounds, "decode")
    loading()
    growth()


def compare(name: str, model: nn.Module, inputs: tuple, rounds: int, limit: str = "") -> None:
    """One line for each mode."""
    for mode, precision in (("exact", "float32"), ("declared", "float16")):
        run = runner(model, inputs, mode, precision)
        with torch.no_grad():
            ours, eager = best(run, lambda: model(*inputs), rounds)
        bound = LIMITS[limit or mode]
        print(f"{name:14} {mode:9} {ours * 1e3:10.1f} / {eager * 1e3:9.1f} {ours / eager:6.2f} {bound:6.2f}")


def runner(model: nn.Module, inputs: tuple, mode: str, precision: str) -> Callable[[], object]:
    """The model's one delegate in the runtime, ready to run on the inputs."""
    from coreproof import lower
    from coreproof.runtime import load

    lowered = lower(model, inputs, compute_precision=precision, mutable_buffer_state="always")
    graph_module = lowered.edge_program_manager.exported_program().graph_module
    delegates = [one.processed_bytes for name, one in graph_module.named_children() if name.startswith("lowered_")]
    if len(delegates) != 1:
        raise SystemExit(f"expected one delegate, got {len(delegates)}")
    loaded = load(delegates[0], mode=mode)
    names = [feature.name for feature in loaded.function().input_features]
    order = [name for name in names if name not in {s.name for s in loaded.function().state_features}]
    data = dict(zip(order, (x.to(torch.int32) if x.dtype == torch.int64 else x for x in inputs), strict=True))
    state = loaded.make_state()
    return lambda: loaded.predict(data, state)


def best(first: Callable, second: Callable, rounds: int) -> tuple[float, float]:
    """The least seconds of each side, runs alternating, after one of each to warm up."""
    first(), second()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, kept in zip((first, second), times, strict=True):
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return min(times[0]), min(times[1])


def loading() -> None:
    """What loading a 300 MB model adds to resident memory, before the first run."""
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder as mb

    from coreproof.runtime import load

    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 5000))], opset_version=ct.target.iOS17)
    def program(x):  # type: ignore[no-untyped-def]
        for number in range(3):
            x = mb.linear(x=x, weight=np.full((5000, 5000), number + 0.5, np.float32))
        return x

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mlpackage"
        ct.convert(
            program,
            minimum_deployment_target=ct.target.iOS17,
            compute_precision=ct.precision.FLOAT32,
            skip_model_load=True,
        ).save(str(path))
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        before = _resident()
        model = load(path)
        added = _resident() - before
        print(f"loading {size / 1e6:.0f} MB adds {added / size:.1%} of it to resident memory (limit 10%)")
        del model


def growth() -> None:
    """The time of chains of 1,000 and of 10,000 ops, an op each."""
    from coreproof.runtime.interpreter import Interpreter
    from coreproof.runtime.ir import Block, Function, Operation, TensorType, Value

    each = {}
    for count in (1_000, 10_000):
        kind = TensorType("fp32", (8,))
        names = ["x", *(f"v{i}" for i in range(count))]
        operations = [
            Operation("relu", {"x": [names[i]]}, [Value(names[i + 1], kind)], name=names[i + 1]) for i in range(count)
        ]
        function = Function("main", "CoreML7", [Value("x", kind)], Block([], operations, [names[-1]]))
        start = time.perf_counter()
        Interpreter(function).run({"x": torch.zeros(8)})
        each[count] = (time.perf_counter() - start) / count
    print(f"an op of 10,000 takes {each[10_000] / each[1_000]:.2f} times one of 1,000 (preparing and running)")


if __name__ == "__main__":
    main()
