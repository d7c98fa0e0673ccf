#!/usr/bin/env python3
"""Fits y = W x + b to three points, the same for every process: the twin of examples/linear.

    python3 linear.py
    torchrun --nproc_per_node 2 linear.py
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--steps", type=int, default=200)
    steps = flags.parse_args().steps
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(1)
    line = torch.nn.Linear(1, 1)
    torch.nn.init.uniform_(line.weight, -1, 1)
    torch.nn.init.uniform_(line.bias, -1, 1)
    model = DistributedDataParallel(line) if world > 1 else line
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    points = torch.tensor([[1.0], [2.0], [3.0]])
    for step in range(steps):
        loss = torch.nn.functional.mse_loss(model(points), points)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if rank == 0 and (step % 20 == 0 or step == steps - 1):
            w, b = line.weight.item(), line.bias.item()
            print(f"step {step} | loss {loss.item():.6f} | W {w:.4f} | b {b:.4f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
