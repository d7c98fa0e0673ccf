#!/usr/bin/python3
"""Trains with torch.distributed on Gloo, and hangs: after a few steps the last rank does
what the argument says, while the others go on to the next step. It knows nothing of plx."""
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

cause = sys.argv[1]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, i):
        if i == 8 and rank == world - 1:
            time.sleep(3600)
        return torch.ones(4)


def once_each(key):
    dist.distributed_c10d._get_default_store().wait([key])


def lock():
    held = threading.Lock()
    held.acquire()
    held.acquire()


def locked_file():
    path = os.path.join(os.getcwd(), "lock")
    holder = subprocess.Popen(["flock", path, "sleep", "3600"], start_new_session=True)
    with open(path, "a") as f:
        while True:  # until the holder has it
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(f, fcntl.LOCK_UN)
                time.sleep(0.01)
            except BlockingIOError:
                break
        fcntl.flock(f, fcntl.LOCK_EX)


def spin():
    while True:
        pass


def full_pipe():
    r, w = os.pipe()
    reader = subprocess.Popen(["sleep", "3600"], pass_fds=[r])
    os.close(r)
    while True:
        os.write(w, b"x" * 65536)


def fifo():
    os.mkfifo("fifo")
    open("fifo")


hang = {
    "sleeps": lambda: time.sleep(3600),
    "is stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "spins": spin,
    "waits for a file lock": locked_file,
    "left early": lambda: os._exit(0),
    "deadlocks": lock,
    "never calls the collective": lambda: once_each("never set"),
    "waits for a child": lambda: subprocess.run(["sleep", "3600"]),
    "fills a pipe": full_pipe,
    "opens a fifo": fifo,
}
batches = iter(torch.utils.data.DataLoader(Slow(), num_workers=1, prefetch_factor=2)) if cause == "its loader sleeps" else None
compute = torch.ones(64, 64)
for step in range(10):
    if batches:
        next(batches)
    time.sleep(0.2)  # a step computes
    dist.all_reduce(torch.ones(1 << 10) + compute.sum())
    if rank == 0:
        print(f"step {step}", flush=True)
    if step == 4 and cause == "left early":
        if rank == world - 1:
            hang[cause]()
        once_each("the last rank is here")  # a barrier that the last rank never reaches
    if step == 4 and rank == world - 1 and cause in hang:
        hang[cause]()
    if step == 4 and cause.startswith("slow"):
        if cause == "slow evaluation" and rank == 0:
            end = time.monotonic() + float(sys.argv[2])
            while time.monotonic() < end:
                compute = torch.mm(compute, compute) * 0 + 1
        if cause == "slow checkpoint" and rank == 0:
            end = time.monotonic() + float(sys.argv[2])
            with open("checkpoint", "wb") as f:
                while time.monotonic() < end:
                    f.write(bytes(1 << 16))
                    f.flush()
                    time.sleep(0.2)
        if cause == "slow compilation" and rank == 0:
            subprocess.run(["timeout", sys.argv[2], "sh", "-c", "while :; do :; done"])
    if cause == "its network is cut" and step == 4:
        print("cut now", flush=True)
        time.sleep(3)
print("done", flush=True)
os._exit(0)  # torch may abort while it ends its threads, if other ranks have left before
