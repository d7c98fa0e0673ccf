"""Measures PyTorch's times for the benchmarks of plx that the arguments name. It prints
its version, and a line for each as Go's benchmarks do. Exit status 77: there is no
PyTorch, or no GPU for it."""

import sys
import time

try:
    import torch
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)
if not torch.cuda.is_available():
    print("PyTorch", torch.__version__, "finds no GPU", file=sys.stderr)
    sys.exit(77)

from torch import nn
import torch.nn.functional as F

# plx computes products in float32, not in TF32.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
torch.manual_seed(3)
gpu = torch.device("cuda")
LEAST = 0.1  # seconds for which work is repeated


def seconds(put):
    """The time of one put: as plx measures it."""
    put()
    torch.cuda.synchronize()
    n = 1
    while True:
        begin = time.perf_counter()
        for _ in range(n):
            put()
        torch.cuda.synchronize()
        spent = time.perf_counter() - begin
        if spent >= LEAST:
            return spent / n
        n *= 2


def noise(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=gpu, dtype=dtype)


def product(kind, count, m, n, k):
    dtype, left, right = kind.split(",")
    dtype = getattr(torch, dtype)

    def operand(rows, columns, transposed):
        if transposed:
            return noise(count, columns, rows, dtype=dtype).transpose(1, 2)
        return noise(count, rows, columns, dtype=dtype)

    a, b = operand(m, k, left == "transposed=true"), operand(k, n, right == "true")
    if count == 1:
        a, b = a[0], b[0]
    out = torch.matmul(a, b)
    return seconds(lambda: torch.matmul(a, b, out=out))


def convolution(kind, batch, channels, side, filters):
    x, f = noise(batch, channels, side, side), noise(filters, channels, 3, 3)
    y = F.conv2d(x, f, padding=1)
    if kind == "forward":
        return seconds(lambda: F.conv2d(x, f, padding=1))
    dy = torch.randn_like(y)
    mask = [kind == "images", kind == "filters", False]
    return seconds(lambda: torch.ops.aten.convolution_backward(dy, x, f, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask))


def move(kind, n):
    if kind == "addition":
        a, b, out = noise(n), noise(n), noise(n)
        return seconds(lambda: torch.add(a, b, out=out))
    if kind in ("in", "out", "within"):
        on_gpu = torch.zeros(n, dtype=torch.uint8, device=gpu)
        if kind == "within":
            other = torch.zeros_like(on_gpu)
            return seconds(lambda: on_gpu.copy_(other))
        host = torch.zeros(n, dtype=torch.uint8).pin_memory()
        if kind == "in":
            return seconds(lambda: on_gpu.copy_(host, non_blocking=True))
        return seconds(lambda: host.copy_(on_gpu, non_blocking=True))
    x, y = noise(1), noise(1)
    if kind == "launch_and_wait":

        def put():
            y.copy_(x)
            torch.cuda.synchronize()

        return seconds(put)
    if kind == "launch":
        return seconds(lambda: y.mul_(1.0))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y.mul_(1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n):
            y.mul_(1.0)
    return seconds(graph.replay)


def linear():
    model = nn.Linear(1, 1)
    return model, torch.optim.SGD(model.parameters(), 0.1), (3, 1), (3, 1), F.mse_loss, 0


def mlp():
    widths, layers = [1024, 256, 256, 256, 32], []
    for i in range(4):
        layers += [nn.Tanh()] * (i > 0) + [nn.Linear(widths[i], widths[i + 1], bias=False)]
    model = nn.Sequential(*layers)
    return model, torch.optim.SGD(model.parameters(), 0.1), (64, 1024), (64, 32), F.cross_entropy, 0


def mnist():
    model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))

    def loss(out, y):
        return F.cross_entropy(out, y, reduction="sum")

    return model, torch.optim.Adagrad(model.parameters(), 0.02), (96, 784), (96, 10), loss, 0


def cifar():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(2048, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    return model, torch.optim.Adam(model.parameters(), 0.005), (32, 3, 32, 32), (32, 10), F.cross_entropy, 1


def step(make):
    """The median time of a step that copies its batch to the GPU and the loss back."""
    model, optimizer, inputs, targets, loss_of, clip = make()
    model.to(gpu)
    x, y = torch.randn(*inputs).pin_memory(), torch.zeros(*targets)
    y[:, 0] = 1
    y = y.pin_memory()
    times = []
    for _ in range(100):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(model(x.to(gpu, non_blocking=True)), y.to(gpu, non_blocking=True))
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - begin)
    return sorted(times[50:])[25]


def measured(name):
    what, kind, *sizes = name.split("/")
    if what == "Step":
        return step({"linear": linear, "mlp": mlp, "mnist": mnist, "cifar": cifar}[kind])
    work = {"Product": product, "Convolution": convolution, "Move": move}[what]
    return work(kind, *map(int, sizes[0].split("x")))


print("PyTorch", torch.__version__, flush=True)
for name in sys.argv[1:]:
    print(f"Benchmark{name} 1 {measured(name) * 1e9:.0f} ns/op", flush=True)
