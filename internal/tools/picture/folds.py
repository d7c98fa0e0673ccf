"""Cross-validation: each rank trains a model of its own, without one part of the data.

The last rank is slow on purpose, so that plx top has a straggler to show.
"""
import os
import time

import torch

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, EVERY = 3000, 25

torch.set_num_threads(1)
g = torch.Generator().manual_seed(1)
x = torch.randn(4000, 64, generator=g)
y = torch.tanh(x @ torch.randn(64, 16, generator=g) / 8) @ torch.randn(16, 1, generator=g) / 4
fold = torch.arange(len(x)) % WORLD == RANK
held_x, held_y, x, y = x[fold], y[fold], x[~fold], y[~fold]

torch.manual_seed(RANK)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
optimiser = torch.optim.Adam(model.parameters(), lr=0.00003)
for step in range(1, STEPS + 1):
    rows = torch.randint(len(x), (256,))
    loss = torch.nn.functional.mse_loss(model(x[rows]), y[rows])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % EVERY == 0:
        with torch.no_grad():
            held = torch.nn.functional.mse_loss(model(held_x), held_y)
        print(f"step {step}/{STEPS} | loss {loss:.4f} | val_loss {held:.4f}", flush=True)
    time.sleep(0.12 if RANK == WORLD - 1 else 0.05)
