#!/usr/bin/env python3
"""Trains a classifier of digit-like images, alone or with DistributedDataParallel.

    python3 train.py                                                  one process
    torchrun --nproc_per_node 2 train.py                              two, on this machine
    plx launch --hosts resources.txt --workdir . python3 train.py     one per device of all hosts

It knows nothing of plx: what it reads are the variables that torchrun sets. The images
are made from a seed, so there is nothing to download. Every host saves. After a restart
the ranks resume from the newest checkpoint that all of them have.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

SIDE, CLASSES = 28, 10


def images(seed, count):
    """Makes count images and their classes: a pattern for each class, shifted, and noise."""
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randn(CLASSES, 1, 7, 7, generator=g)
    patterns = torch.nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    labels = torch.randint(CLASSES, (count,), generator=g)
    x = patterns[labels]
    shifts = torch.randint(-2, 3, (count, 2), generator=g)
    x = torch.stack([torch.roll(image, tuple(s.tolist()), dims=(1, 2)) for image, s in zip(x, shifts)])
    return x + 4.0 * torch.randn(x.shape, generator=g), labels


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, stride=3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 8 * 8, CLASSES))


def share(step, seed, count, batch, rank, world):
    """The rows of a step that are this rank's. All ranks together take the same rows in
    any number, and a step repeated after a restart takes the same rows again."""
    g = torch.Generator().manual_seed(seed * 1_000_003 + step)
    return torch.randint(count, (batch,), generator=g)[rank::world]


class Checkpoints:
    """Checkpoints in a folder of the host, which all ranks of the host share."""

    def __init__(self, folder, keep=3):
        self.folder, self.keep = os.path.expanduser(folder), keep
        os.makedirs(self.folder, exist_ok=True)

    def path(self, step):
        return os.path.join(self.folder, f"step-{step:08d}.pt")

    def steps(self):
        names = [n for n in os.listdir(self.folder) if n.startswith("step-") and n.endswith(".pt")]
        return sorted(int(n[5:-3]) for n in names)

    def save(self, step, state):
        """A checkpoint has its name only once it is complete and on the disk."""
        temporary = f"{self.path(step)}.{os.uname().nodename}.{os.getpid()}"
        with open(temporary, "wb") as f:
            torch.save(state, f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, self.path(step))
        for old in self.steps()[:-self.keep]:
            os.remove(self.path(old))

    def newest_common(self, world):
        """The newest step of which every rank sees a checkpoint, or None."""
        seen = [set(self.steps())]
        if world > 1:
            seen = [None] * world
            dist.all_gather_object(seen, set(self.steps()))
        return max(set.intersection(*seen), default=None)


def flags():
    p = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch-size", type=int, default=96, help="rows of a step, over all ranks")
    p.add_argument("--samples", type=int, default=4000)
    p.add_argument("--lr", type=float, default=0.005)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ckpt-dir", default="checkpoints", help="folder on each host; ~ is the home there")
    p.add_argument("--ckpt-every", type=int, default=50, metavar="STEPS")
    p.add_argument("--pause", type=float, default=0, metavar="SECONDS", help="wait after each step, to watch")
    return p.parse_args()


@record  # writes an exception to TORCHELASTIC_ERROR_FILE
def main():
    args = flags()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    saves = int(os.environ.get("LOCAL_RANK", 0)) == 0
    if world > 1:
        dist.init_process_group("gloo")

    def say(text):
        if rank == 0:
            print(text, flush=True)

    x, y = images(args.seed, args.samples)
    model = network(args.seed)
    optimiser = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    checkpoints, first = Checkpoints(args.ckpt_dir), 0
    newest = checkpoints.newest_common(world)
    if newest is not None:
        state = torch.load(checkpoints.path(newest), map_location="cpu")
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        first = newest
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    say(f"{world} ranks begin after step {first}, restart {restarts} of {os.environ.get('TORCHELASTIC_MAX_RESTARTS', '0')}")
    trained = DistributedDataParallel(model) if world > 1 else model

    for step in range(first + 1, args.steps + 1):
        rows = share(step, args.seed, args.samples, args.batch_size, rank, world)
        losses = torch.nn.functional.cross_entropy(trained(x[rows]), y[rows], reduction="sum")
        optimiser.zero_grad()
        (losses * world / args.batch_size).backward()  # DDP divides by world
        optimiser.step()
        if step % args.ckpt_every == 0:
            if saves:
                checkpoints.save(step, {"model": model.state_dict(), "optimiser": optimiser.state_dict()})
            say(f"step {step} | saved")
        time.sleep(args.pause)

    with torch.no_grad():
        scores = model(x)
        loss = torch.nn.functional.cross_entropy(scores, y).item()
        right = (scores.argmax(1) == y).float().mean().item()
    say(f"done after step {args.steps} | loss {loss:.4f} | accuracy {right:.3f}")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
