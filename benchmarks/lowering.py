"""Time and peak memory of coreproof's lowering beside the stock one: `python benchmarks/lowering.py`.

Each lowering runs in a process of its own, the two sides alternating in one
run. Timed is `to_edge_transform_and_lower` plus `to_executorch`, in seconds of
processor time (wall time varies by a quarter on a shared machine); imports and
torch.export come before. Memory is the process's peak above its level at that
start, in multiples of the float32 weights. Printed are medians and their ratio
coreproof / stock; what deciding the placement takes of a lowering whose
verdicts are in the cache; and the same of one lowering more, the first, whose
cache was empty; and what running the finished program beside the model costs on
top, as `coreproof.lower` does, as a share of the lowering.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

MODELS = ("conv", "transformer12", "transformer48")
SIDES = ("coreproof", "stock")


def build(name: str):
    """The model `name` and its inputs: all lower wholly into one delegate on both sides."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Conv(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [3, 64, 128, 256, 256, 512, 512, 512]
            self.blocks = nn.Sequential(
                *(
                    nn.Sequential(nn.Conv2d(a, b, 3, stride=2 if b > a else 1, padding=1), nn.BatchNorm2d(b), nn.ReLU())
                    for a, b in zip(widths[:-1], widths[1:], strict=True)
                )
            )
            self.head = nn.Linear(widths[-1], 1000)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.blocks(x).mean((2, 3)))

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, width = x.shape
            split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
            q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Transformer(nn.Module):
        def __init__(self, layers: int, width: int, heads: int) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x

    if name == "conv":
        return Conv().eval(), (torch.randn(1, 3, 96, 96),)
    layers = int(name.removeprefix("transformer"))
    return Transformer(layers, 384, 6).eval(), (torch.randn(1, 64, 384),)


class PeakMemory:
    """The highest resident size of this process in the body, in bytes above the size at its start."""

    def __enter__(self) -> PeakMemory:
        self._base = _resident()
        self.bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.bytes = max(self.bytes, _resident() - self._base)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def _resident() -> int:
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS: the peak so far


def measure(name: str, side: str) -> dict[str, float]:
    """Lower one model once, in this process."""
    import coremltools as ct
    import executorch.exir as exir
    import torch
    from executorch.backends.apple.coreml.compiler import CoreMLBackend
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner as Stock

    from coreproof import CoreMLPartitioner as Ours

    model, inputs = build(name)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    program = torch.export.export(model, inputs, strict=False)
    del model
    specs = CoreMLBackend.generate_compile_specs(minimum_deployment_target=ct.target.iOS18)
    partitioner = (Ours if side == "coreproof" else Stock)(compile_specs=specs)
    with PeakMemory() as memory:
        start = time.process_time()
        manager = exir.to_edge_transform_and_lower(program, partitioner=[partitioner])
        finished = manager.to_executorch()
        seconds = time.process_time() - start
    delegates = sum(n.name.startswith("lowered_module") for n in manager.exported_program().graph.nodes)
    placing = partitioner.placement["forward"].seconds if side == "coreproof" else 0.0
    return {
        "seconds": seconds,
        "verifying": _verifying(program, inputs, manager, finished.buffer) / seconds if side == "coreproof" else 0.0,
        "placing": placing / seconds,
        "peak": memory.bytes / weights,
        "delegates": delegates,
        "bytes": len(finished.buffer),
        "weights": weights,
    }


def _verifying(program, inputs, manager, pte: bytes) -> float:
    """Seconds of processor time that `coreproof.lower` would spend on verifying the program."""
    from coreproof.lowering import VARIATIONS
    from coreproof.verify.compare import tolerance
    from coreproof.verify.lowered import Method, example_call, verify_lowered

    start = time.process_time()
    method = Method(program, None, example_call(inputs), steps=None, variations=VARIATIONS, seed=0)
    found = verify_lowered(manager, bytes(pte), {"forward": method}, tolerance())
    assert found.outcome in ("match", "precision"), found.outcome
    return time.process_time() - start


def in_a_process(name: str, side: str, cache: str) -> dict[str, float]:
    """`measure` in a fresh process, with the verdicts that the folder `cache` holds."""
    command = [sys.executable, __file__, "--one", name, side]
    environment = {**os.environ, "COREPROOF_CACHE": cache}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{name} on {side} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure and print one line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="lowerings of each side (default 3)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "SIDE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*arguments.one)))
        return
    heads = f"{'model':14} {'weights':>8} {'seconds':>17} {'ratio':>6} {'peak/weights':>15} {'ratio':>6}"
    print(heads, f"{'placing':>8} {'cold':>6} {'verifying':>9}")
    for name in arguments.models:
        rows: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        with tempfile.TemporaryDirectory() as cache:
            cold = in_a_process(name, "coreproof", cache)
            for number in range(arguments.rounds):
                for side in SIDES if number % 2 == 0 else reversed(SIDES):
                    rows[side].append(in_a_process(name, side, cache))
        print(_line(name, rows, cold))


def _line(name: str, rows: dict[str, list[dict[str, float]]], cold: dict[str, float]) -> str:
    ours, stock = rows["coreproof"], rows["stock"]

    def median(side: list[dict[str, float]], key: str) -> float:
        return statistics.median(row[key] for row in side)

    def ratio(key: str) -> float:
        return median(ours, key) / median(stock, key)

    return (
        f"{name:14} {ours[0]['weights'] / 1e6:6.0f}MB "
        f"{median(ours, 'seconds'):7.2f} / {median(stock, 'seconds'):7.2f} {ratio('seconds'):6.2f} "
        f"{median(ours, 'peak'):6.2f} / {median(stock, 'peak'):6.2f} {ratio('peak'):6.2f} "
        f"{median(ours, 'placing'):8.1%} {cold['placing']:6.1%} {median(ours, 'verifying'):9.1%}"
    )


if __name__ == "__main__":
    main()
