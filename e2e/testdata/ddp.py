#!/usr/bin/python3
"""Trains a linear model with PyTorch's DistributedDataParallel. It knows
nothing of plx: rank, world size and addresses come from the variables that
torch.distributed reads by itself."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

ranks = torch.tensor([float(rank)])
dist.all_reduce(ranks)
dist.all_reduce(torch.ones(1 << 20))  # 4 MiB, for a test that looks at the network
print(f"sum of ranks {ranks.item():.0f} of {world}")

torch.manual_seed(rank)  # other weights and other data on every rank
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
truth = torch.arange(8.0).reshape(8, 1)
for step in range(20):
    x = torch.randn(16, 8)
    loss = ((model(x) - x @ truth) ** 2).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0 and step in (0, 19):
        print(f"step {step} loss {mean.item() / world:.4f}")

weights = torch.cat([p.detach().flatten() for p in model.parameters()])
print("weights", weights.numpy().tobytes().hex())
dist.destroy_process_group()
