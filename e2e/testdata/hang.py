#!/usr/bin/python3
"""Trains with torch.distributed on Gloo, and hangs: after a few steps the last rank does
what the argument says, while the others go on to the next step. It knows nothing of plx."""
import ctypes
import fcntl
import os
import signal
import socket
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


def uninterruptible():
    """Stays in the kernel's state D, as in a driver or on a disk that is gone: the child
    of vfork runs in this process's memory, and the process waits for its end."""
    libc = ctypes.PyDLL(None)
    if libc.syscall(58) == 0:  # vfork on x86-64
        time.sleep(3600)


def chunks(seconds, write):
    """Moves 64 KiB every 0.2 s."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        write(bytes(1 << 16))
        time.sleep(0.2)


def checkpoint(seconds):
    with open("checkpoint", "wb") as f:
        chunks(seconds, lambda piece: (f.write(piece), f.flush()))


def peer():
    """A server elsewhere, as far as plx can see: no process of the task has its end. It ends
    with the connection."""
    read, write = os.pipe()
    subprocess.Popen([sys.executable, "-c", """if True:
        import os, socket, sys, time
        s = socket.create_server(("127.0.0.1", 0))
        os.write(int(sys.argv[1]), b"%d" % s.getsockname()[1])
        os.close(int(sys.argv[1]))
        c, _ = s.accept()
        try:
            while True:
                c.sendall(bytes(1 << 12))
                time.sleep(0.2)
        except OSError:
            pass
        """, str(write)], pass_fds=[write])
    os.close(write)
    return socket.create_connection(("127.0.0.1", int(os.read(read, 16))))


def download(seconds):
    c, end = peer(), time.monotonic() + seconds
    while time.monotonic() < end:
        c.recv(1 << 16)


def compute_in(*command):
    return lambda seconds: subprocess.run([*command, f"timeout {seconds} sh -c 'while :; do :; done'"])


def evaluate(seconds):
    end, x = time.monotonic() + seconds, torch.ones(64, 64)
    while time.monotonic() < end:
        x = torch.mm(x, x) * 0 + 1


def bar(seconds):
    for i in range(int(seconds)):
        print(f"evaluated {i}", flush=True)
        time.sleep(1)


def slow_file(seconds):
    """Reads a file that a child fills slowly, as over a network."""
    os.mkfifo("data")
    child = subprocess.Popen([sys.executable, "-c", "import time\nf = open('data', 'wb', 0)\nfor i in range(%d): f.write(bytes(32768)); time.sleep(0.2)" % int(seconds * 5)])
    with open("data", "rb") as f:
        while f.read(1 << 14):
            pass
    child.wait()


def copy(seconds):
    """A child copies files, as cp or rsync does, while the rank waits for it."""
    subprocess.run(["sh", "-c", "i=0; while [ $i -lt %d ]; do head -c 200000 /dev/zero >copied; i=$((i + 1)); sleep 1; done" % int(seconds)])


def stagger(seconds):
    """Nobody is quick: each step takes most of the timeout."""
    for _ in range(int(seconds // 4)):
        if rank == 0:
            time.sleep(4)
        dist.all_reduce(torch.ones(1 << 10))


def decode(seconds):
    """Threads of a loader compute, and the rank sleeps in between."""
    threads = [threading.Thread(target=evaluate, args=(seconds,)) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def upload(seconds):
    """Sends a checkpoint away, piece by piece, to one who reads it slowly."""
    server = socket.create_server(("127.0.0.1", 0))
    here = socket.create_connection(server.getsockname())
    there, _ = server.accept()
    chunks(seconds, lambda piece: (here.sendall(piece[:8192]), there.recv(8192)))


# What the first rank does while the others wait, and whether all ranks take part.
slow = {
    "slow compilation": compute_in("sh", "-c"),
    "slow build in a grandchild": compute_in("nice", "sh", "-c"),
    "slow evaluation": evaluate,
    "slow checkpoint": checkpoint,
    "slow download": download,
    "slow upload": upload,
    "slow printing": bar,
    "slow file": slow_file,
    "slow copy": copy,
    "slow steps": stagger,
    "slow decoding": decode,
    "slow server": lambda seconds: subprocess.run(["timeout", str(seconds), "sh", "-c", "while sleep 1; do echo epoch; done"]),
}
hang = {
    "is stuck in the kernel": uninterruptible,
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
    if step == 4 and cause in slow and (rank == 0 or cause == "slow steps"):
        slow[cause](float(sys.argv[2]))
    if cause == "its network is cut" and step == 4:
        print("cut now", flush=True)
        time.sleep(3)
print("done", flush=True)
os._exit(0)  # torch may abort while it ends its threads, if other ranks have left before
