#!/usr/bin/python3
"""The models of examples/mlp, cifar and lm for PyTorch: alone, or by
DistributedDataParallel on Gloo. As there, every step makes its batch, from data in
memory, and each worker computes with one thread. It knows nothing of plx.

    torch_step.py mlp --steps 1000 --every 100

It prints a line after every so many steps, like the examples."""
import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sparse"))
import ddp_lm  # noqa: E402


class MLP:
    """Four layers without biases, tanh between them, and SGD whose rate falls."""

    def __init__(self, rank, world, batch, steps):
        widths = [1024, 256, 256, 256, 32]
        layers = []
        for i in range(4):
            layers += [torch.nn.Tanh()] * (i > 0) + [torch.nn.Linear(widths[i], widths[i + 1], bias=False)]
        self.model = torch.nn.Sequential(*layers)
        self.features, self.classes = torch.randn(10000, 1024), torch.randint(32, (10000,))
        self.rank, self.rows, self.batch, self.steps = rank, batch // world, batch, steps

    def optimiser(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    def rate(self, step):
        return 0.1 * (1 - 0.7 * step / self.steps)

    def own(self, step):
        """The samples of this rank: an epoch's order is drawn once, like theirs."""
        each = len(self.classes) // self.batch
        epoch, i = divmod(step, each)
        if i == 0:
            self.order = torch.randperm(len(self.classes), generator=torch.Generator().manual_seed(epoch))
        return self.order[i * self.batch + self.rank * self.rows:][:self.rows]

    def loss(self, parallel, step):
        rows = self.own(step)
        return functional.cross_entropy(parallel(self.features[rows]), self.classes[rows])


class CIFAR(MLP):
    """Two convolutions, batch norm, dropout, and Adam with clipping."""

    def __init__(self, rank, world, batch, steps):
        nn = torch.nn
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
        self.pixels, self.classes = torch.randint(256, (2000, 3, 32, 32), dtype=torch.uint8), torch.randint(10, (2000,))
        self.rank, self.rows, self.batch, self.steps = rank, batch // world, batch, steps

    def optimiser(self, parameters):
        return torch.optim.Adam(parameters, lr=0.005)

    def rate(self, step):
        return 0.005 * min(1, (step + 1) / 11)

    def loss(self, parallel, step):
        rows = self.own(step)
        return functional.cross_entropy(parallel(self.pixels[rows].float().div_(255).sub_(0.45).div_(0.25)), self.classes[rows])


class LM:
    """The language model of ddp_lm.py, whose words and samples are drawn in each step."""

    def __init__(self, rank, world, batch, steps):
        a = argparse.Namespace(vocabulary=10000, width=128, hidden=128, length=20, samples=512, sparse=False, seed=0)
        rows = batch // world
        self.model, self.text, self.length = ddp_lm.Model(a), ddp_lm.Words(a, rank, rows), a.length
        self.state = (torch.zeros(1, rows, a.width), torch.zeros(1, rows, a.hidden))

    def optimiser(self, parameters):
        return torch.optim.Adagrad(parameters, lr=0.05, initial_accumulator_value=1e-6)

    def rate(self, step):
        return 0.05 * min(1, (step + 1) / 51)

    def loss(self, parallel, step):
        loss, state = parallel(*self.text.batch(self.length), self.state)
        self.state = tuple(s.detach() for s in state)
        return loss


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model", choices=["mlp", "cifar", "lm"])
    p.add_argument("--batch-size", type=int, required=True, help="rows of all workers together")
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--every", type=int, required=True)
    p.add_argument("--sparse", action="store_true", help="lm: gradients of the rows alone")
    a = p.parse_args()
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.manual_seed(0)
    task = {"mlp": MLP, "cifar": CIFAR, "lm": LM}[a.model](rank, world, a.batch_size, a.steps)
    if a.sparse:
        task.model.words.sparse = task.model.classes.sparse = True
    parallel = task.model
    if world > 1:
        dist.init_process_group("gloo")
        parallel = DistributedDataParallel(task.model, gradient_as_bucket_view=not a.sparse)
    trained = [p for p in task.model.parameters() if p.requires_grad]
    optimiser = task.optimiser(trained)
    for step in range(a.steps):
        for group in optimiser.param_groups:
            group["lr"] = task.rate(step)
        optimiser.zero_grad(set_to_none=True)
        loss = task.loss(parallel, step)
        loss.backward()
        if a.model != "mlp":
            ddp_lm.clip(trained, 1)
        optimiser.step()
        if rank == 0 and step % a.every == 0:
            print(f"step {step} | loss {loss.item():.4f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


main()
