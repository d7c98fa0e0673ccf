#!/usr/bin/env python3
"""Trains a network with one hidden layer to read digits: the twin of examples/mnist.

    python3 mnist.py
    torchrun --nproc_per_node 2 mnist.py --images train-images-idx3-ubyte.gz --labels train-labels-idx1-ubyte.gz

Without files it uses artificial images of the same shape.
"""
import argparse
import gzip
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SIDE, CLASSES, HIDDEN = 28, 10, 100


def read_idx(path, magic):
    """Reads an IDX file of bytes, packed with gzip or not."""
    with open(path, "rb") as f:
        packed = f.read(2) == b"\x1f\x8b"
    with (gzip.open if packed else open)(path, "rb") as f:
        content = f.read()
    if int.from_bytes(content[:4], "big") != magic:
        raise SystemExit(f"{path}: not an IDX file of this kind")
    header = 4 + 4 * content[3]  # the fourth byte is the number of dimensions
    return torch.frombuffer(bytearray(content[header:]), dtype=torch.uint8)


def made_images(seed, count):
    """Makes count images and their classes: a pattern for each class, shifted, and noise."""
    g = torch.Generator().manual_seed(seed)
    coarse = torch.rand(CLASSES, 1, 7, 7, generator=g)
    patterns = torch.nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    labels = torch.randint(CLASSES, (count,), generator=g)
    shifts = torch.randint(-2, 3, (count, 2), generator=g).tolist()
    x = torch.stack([torch.roll(patterns[c], tuple(s), dims=(1, 2)) for c, s in zip(labels.tolist(), shifts)])
    return (x + 0.3 * torch.randn(x.shape, generator=g)).reshape(count, -1), labels


def network(seed):
    torch.manual_seed(seed)
    layers = torch.nn.Sequential(torch.nn.Linear(SIDE * SIDE, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES))
    for linear in layers[0], layers[2]:
        torch.nn.init.kaiming_uniform_(linear.weight, nonlinearity="relu")
        torch.nn.init.zeros_(linear.bias)
    return layers


def share(step, seed, count, batch, rank, world):
    """The rows of a step that are this rank's: each epoch has an order of its own."""
    epoch, at = divmod(step, count // batch)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
    return order[at * batch:][:batch].chunk(world)[rank]


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--images", help="IDX file of images")
    p.add_argument("--labels", help="IDX file of their labels")
    p.add_argument("--samples", type=int, default=6000, help="number of artificial images")
    p.add_argument("--batch-size", type=int, default=96, help="images of one step, over all ranks")
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--learning-rate", type=float, default=0.02)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if args.batch_size % world:
        raise SystemExit(f"--batch-size is {args.batch_size}: want a multiple of {world} ranks")
    if world > 1:
        dist.init_process_group("gloo")
    if args.images:
        x = read_idx(args.images, 2051).reshape(-1, SIDE * SIDE).float() / 255
        y = read_idx(args.labels, 2049).long()
    else:
        x, y = made_images(args.seed, args.samples)
    model = network(args.seed)
    if world > 1:
        model = DistributedDataParallel(model)
    optimiser = torch.optim.Adagrad(model.parameters(), lr=args.learning_rate, initial_accumulator_value=0.1)
    for step in range(args.steps):
        rows = share(step, args.seed, len(x), args.batch_size, rank, world)
        scores = model(x[rows])
        loss = torch.nn.functional.cross_entropy(scores, y[rows], reduction="sum")
        optimiser.zero_grad()
        (loss * world).backward()  # DDP divides by world, and the loss is a sum
        optimiser.step()
        if step % 50 == 0:
            whole = torch.stack([loss.detach(), (scores.argmax(1) == y[rows]).float().sum()])
            if world > 1:
                dist.all_reduce(whole)
            if rank == 0:
                print(f"step {step} | loss {whole[0]:.4f} | accuracy {whole[1] / args.batch_size:.3f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
