#!/usr/bin/python3
"""Two tasks: rank 1 sends rank 0 a line a second, and then sleeps. Rank 0 reads."""
import os
import socket
import time

rank, host, port = int(os.environ["RANK"]), os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server((host, port))
    for line in server.accept()[0].makefile():
        print(line, end="", flush=True)
while True:
    try:
        connection = socket.create_connection((host, port))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
for step in range(2):
    connection.sendall(f"step {step}\n".encode())
    time.sleep(1)
time.sleep(3600)
