#!/usr/bin/python3
"""The language model of examples/lm for PyTorch's DistributedDataParallel on
Gloo: an embedding, an LSTM, and a softmax over sampled words, each worker with
samples of its own. It knows nothing of plx: rank, world size and addresses come
from the variables that torch.distributed reads by itself.

With --sparse both tables have sparse gradients, which Gloo gathers; without it
they are summed as large as the tables are."""
import argparse
import math
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


def arguments():
    a = argparse.ArgumentParser()
    a.add_argument("--vocabulary", type=int, default=10000)
    a.add_argument("--width", type=int, default=128)
    a.add_argument("--hidden", type=int, default=128)
    a.add_argument("--length", type=int, default=20)
    a.add_argument("--batch-size", type=int, default=32, help="rows of text, over all workers")
    a.add_argument("--samples", type=int, default=512)
    a.add_argument("--steps", type=int, default=500)
    a.add_argument("--learning-rate", type=float, default=0.05)
    a.add_argument("--every", type=int, default=50)
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--sparse", action="store_true")
    return a.parse_args()


class Words:
    """Made text and samples, as examples/lm makes them: every second word, on
    the average, is the one that always follows the word before, the others are
    drawn by Zipf's law; samples are drawn by the same law until so many
    different ones are there."""

    def __init__(self, a, rank, rows):
        self.vocabulary, self.samples = a.vocabulary, a.samples
        self.following = self.zipf(np.random.default_rng([a.seed, 1]).random(a.vocabulary))
        self.random = np.random.default_rng([a.seed, 2, rank])
        self.last = np.zeros(rows, np.int64)

    def zipf(self, u):
        k = np.exp(u * math.log(self.vocabulary + 1)).astype(np.int64) - 1
        return np.minimum(k, self.vocabulary - 1)

    def text(self, length):
        """The words of the next steps and, one on, those that follow them."""
        columns = [self.last]
        for _ in range(length):
            rule, u = self.random.random((2, len(self.last)))
            self.last = np.where(rule < 0.5, self.following[self.last], self.zipf(u))
            columns.append(self.last)
        all = np.stack(columns, 1)
        return all[:, :-1], all[:, 1:]

    def draw(self):
        """Different words, and how many draws it took."""
        drawn = np.empty(0, np.int64)
        while True:
            drawn = np.append(drawn, self.zipf(self.random.random(self.samples)))
            first = np.sort(np.unique(drawn, return_index=True)[1])
            if len(first) >= self.samples:
                last = first[self.samples - 1]
                return drawn[first[: self.samples]], last + 1

    def logs(self, words, tries):
        """Logarithms of the probabilities to be among so many draws."""
        p = np.log1p(1 / (words + 1.0)) / math.log(self.vocabulary + 1)
        return np.log(-np.expm1(tries * np.log1p(-p))).astype(np.float32)

    def batch(self, length):
        words, targets = self.text(length)
        labels = targets.reshape(-1)
        samples, tries = self.draw()
        return tuple(torch.from_numpy(np.ascontiguousarray(x)) for x in (
            words, labels, samples, self.logs(labels, tries), self.logs(samples, tries)))


class Model(torch.nn.Module):
    def __init__(self, a):
        super().__init__()
        self.width = a.width
        self.words = torch.nn.Embedding(a.vocabulary, a.width, sparse=a.sparse)
        self.classes = torch.nn.Embedding(a.vocabulary, a.width + 1, sparse=a.sparse)  # weights, and the bias at the end
        projection = {} if a.hidden == a.width else {"proj_size": a.width}
        self.lstm = torch.nn.LSTM(a.width, a.hidden, batch_first=True, **projection)
        for table in (self.words, self.classes):
            torch.nn.init.uniform_(table.weight, -0.05, 0.05)
        for name, p in self.lstm.named_parameters():
            if p.dim() > 1:
                torch.nn.init.xavier_uniform_(p)
            else:
                torch.nn.init.zeros_(p)
        with torch.no_grad():  # a forget gate that begins by keeping
            self.lstm.bias_hh_l0[a.hidden : 2 * a.hidden] = 1
        self.lstm.bias_hh_l0.requires_grad_(False)  # one bias is enough

    def forward(self, words, labels, samples, label_logs, sample_logs, state):
        out, state = self.lstm(self.words(words), state)
        x = out.reshape(-1, self.width)
        rows = self.classes(torch.cat([labels, samples]))  # one look-up: one gradient
        own, drawn = rows[: len(labels)], rows[len(labels) :]
        label = (x * own[:, :-1]).sum(1) + own[:, -1] - label_logs
        others = torch.addmm(drawn[:, -1] - sample_logs, x, drawn[:, :-1].t())
        others = others.masked_fill(labels[:, None] == samples[None, :], -math.inf)
        logits = torch.cat([label[:, None], others], 1)
        return functional.cross_entropy(logits, torch.zeros_like(labels)), state


def clip(parameters, most):
    """Makes the norm of all gradients at most this. PyTorch 1.13's own function
    leaves sparse gradients as they are."""
    gradients = [p.grad._values() if p.grad.is_sparse else p.grad for p in parameters]
    norm = torch.stack([g.norm() for g in gradients]).norm().item()
    if norm > most:
        for g in gradients:
            g.mul_(most / norm)


def blas():
    """The BLAS library that is loaded."""
    for line in open("/proc/self/maps"):
        if "blas" in line and line.split()[-1].startswith("/"):
            return line.split()[-1]
    return "unknown BLAS"


def main():
    a = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    rows = a.batch_size // world
    torch.manual_seed(a.seed)
    model = Model(a)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=not a.sparse)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.Adagrad(trained, lr=a.learning_rate, initial_accumulator_value=1e-6)
    text = Words(a, rank, rows)
    batches = [text.batch(a.length) for _ in range(min(a.steps, 256))]  # made before the clock starts
    if rank == 0:
        touched = np.mean([[len(np.unique(b[0])), len(np.unique(np.append(b[1], b[2])))] for b in batches], 0)
        print(f"torch {torch.__version__} {blas()} rows {touched[0]:.1f} {touched[1]:.1f}", flush=True)
    state = (torch.zeros(1, rows, a.width), torch.zeros(1, rows, a.hidden))
    since = time.monotonic()
    for step in range(a.steps):
        for group in optimiser.param_groups:  # as examples/lm warms up
            group["lr"] = a.learning_rate * min(1, (step + 1) / 51)
        optimiser.zero_grad(set_to_none=True)
        loss, state = parallel(*batches[step % len(batches)], state)
        state = tuple(s.detach() for s in state)
        loss.backward()
        clip(trained, 1)
        optimiser.step()
        if rank == 0 and step % a.every == 0:
            now = time.monotonic()
            done = (1 if step == 0 else a.every) * a.batch_size * a.length
            print(f"step {step} | loss {loss.item():.4f} | words/s {done / (now - since):.1f}", flush=True)
            since = now
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
