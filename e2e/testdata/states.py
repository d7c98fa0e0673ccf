#!/usr/bin/python3
"""Is in one state until a file appears: rank 1, while rank 0 waits for the file or is in the
same state. Whatever ends early ends the program with an error. It knows nothing of plx."""
import ctypes
import fcntl
import os
import select
import subprocess
import sys
import threading
import time

state, folder = sys.argv[1:]
rank = int(os.environ["RANK"])
gone = os.path.join(folder, "go")
libc = ctypes.CDLL(None, use_errno=True)


def begun():
    print("up", flush=True)


def waits():
    return not os.path.exists(gone)


def foreign(waits=waits, usleep=libc.usleep):
    """Sleeps in C, as a driver or a library does."""
    while waits():
        if usleep(500_000) != 0:
            os.write(2, b"the sleep was ended early\n")
            os._exit(1)


if state == "import":
    begun()
    while waits():
        subprocess.run([sys.executable, "-c", "import torch"], check=True)

import torch
import torch.distributed as dist


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        foreign()
        return torch.ones(2)


class Last:
    def __del__(self, foreign=foreign):
        foreign()


def exiting():
    sys.modules["last"] = Last()


def locked():
    held = threading.Lock()
    held.acquire()
    threading.Thread(target=lambda: (foreign(), held.release())).start()
    held.acquire()


def locked_file():
    name = os.path.join(folder, f"lock-{rank}")
    holder = subprocess.Popen(["flock", name, "sh", "-c", f"touch {name}.held; until [ -e {gone} ]; do sleep 0.1; done"])
    while not os.path.exists(name + ".held"):
        time.sleep(0.01)
    with open(name) as f:
        if libc.flock(f.fileno(), fcntl.LOCK_EX) != 0:
            sys.exit("the wait for the lock was ended early")
    holder.wait()


def backward():
    x = torch.ones(64, 64, requires_grad=True)
    while waits():
        (x @ x).sum().backward()


def sleeping():
    while waits():
        time.sleep(0.5)


def selecting():
    while waits():
        select.select([], [], [], 0.5)


begun()
if state in ("store", "reduce"):
    if state == "store" and rank == 0:
        foreign()
    dist.init_process_group("gloo")
    if state == "reduce" and rank == 0:
        foreign()
    dist.all_reduce(torch.ones(4))
elif state != "import":
    {
        "loader": lambda: list(torch.utils.data.DataLoader(Slow(), num_workers=2)),
        "sleep": sleeping,
        "select": selecting,
        "foreign": foreign,
        "child": lambda: subprocess.run(["sh", "-c", f"until [ -e {gone} ]; do sleep 0.1; done"], check=True),
        "lock": locked,
        "file": locked_file,
        "backward": backward,
        "exit": exiting,
    }[state]()
print("done", flush=True)
