"""Receives bytes until the sender closes and prints how many came in a second, or sends
for some seconds: link.py receive PORT, link.py send HOST PORT SECONDS."""
import socket
import sys
import time

if sys.argv[1] == "receive":
    connection, _ = socket.create_server(("", int(sys.argv[2]))).accept()
    connection.recv(1 << 20)  # what came before the clock starts does not count
    total = 0
    begin = last = time.monotonic()
    while data := connection.recv(1 << 20):
        total, last = total + len(data), time.monotonic()
    print(total / (last - begin))
else:
    deadline = time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection((sys.argv[2], int(sys.argv[3])), 1)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    connection.settimeout(None)
    end = time.monotonic() + float(sys.argv[4])
    while time.monotonic() < end:
        connection.sendall(bytes(1 << 20))
