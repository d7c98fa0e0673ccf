#!/usr/bin/python3
"""Two tasks: rank 1 sends rank 0 a line a second until a file is there, and then does what
the second argument says, by default it sleeps. Rank 0 reads."""
import itertools
import os
import signal
import socket
import sys
import time


def move(once):
    """Moves for 9 s, and nothing else of the job does."""
    end = time.monotonic() + 9
    while time.monotonic() < end:
        once()
        time.sleep(0.2)
    sys.exit()


def compute():
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass


then = {
    "sleeps": lambda: time.sleep(3600),
    "stops": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "computes": lambda: move(compute),
    "saves": lambda: move(lambda: open("checkpoint", "wb").write(bytes(1 << 16))),
}

rank, host, port = int(os.environ["RANK"]), os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server((host, port))
    for line in server.accept()[0].makefile():
        print(line, end="", flush=True)
    if sys.argv[2:] not in (["computes"], ["saves"]):
        time.sleep(3600)  # rank 1 was killed: the end of its lines is not the end of this task
    sys.exit()
while True:
    try:
        connection = socket.create_connection((host, port))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
for step in itertools.count():
    connection.sendall(f"step {step}\n".encode())
    time.sleep(1)
    if os.path.exists(sys.argv[1]):
        break
then[sys.argv[2] if len(sys.argv) > 2 else "sleeps"]()
