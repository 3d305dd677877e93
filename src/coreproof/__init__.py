"""Lower PyTorch models to Core ML through ExecuTorch, with a reason for everything that stays on the CPU."""
