#!/usr/bin/env python3
"""A language model with a sampled softmax: the twin of examples/lm.

    python3 lm.py
    torchrun --nproc_per_node 2 lm.py --text news.txt --words vocabulary.txt

The tables of words and classes have sparse gradients. Without a text, a rule generates the
words: every second word is the one that always follows the word before it.
"""
import argparse
import math
import os
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def zipf(u, classes):
    """The class that a number u in [0, 1) stands for: class k with chance log((k+2)/(k+1)) / log(classes+1)."""
    return min(int(math.exp(u * math.log(classes + 1))) - 1, classes - 1)


def made_text(seed, classes):
    following = [zipf(random.Random(f"{seed} follows {k}").random(), classes) for k in range(classes)]

    def row(number):
        draw, word = random.Random(f"{seed} row {number}"), 0
        while True:
            word = following[word] if draw.random() < 0.5 else zipf(draw.random(), classes)
            yield word
    return row


def read_text(path, words, most, rows):
    """Reads a text whose words are those of a vocabulary, the most frequent first; 0 ends a sentence, 1 is unknown."""
    with open(words) as f:
        names = [w for w in (line.split()[0] for line in f if line.strip()) if w not in ("<S>", "<UNK>")]
    ids = {name: i + 2 for i, name in enumerate(names[:most - 2])}
    with open(path) as f:
        text = [i for line in f for i in [ids.get(w, 1) for w in line.split()] + [0]]

    def row(number):
        at = number * len(text) // rows
        while True:
            yield text[at % len(text)]
            at += 1
    return row, len(ids) + 2


class Sampler:
    """Draws classes, and the logarithms of how often each class is expected in a draw."""

    def __init__(self, classes, samples):
        k = torch.arange(classes, dtype=torch.float64)
        self.chance = torch.log((k + 2) / (k + 1)) / math.log(classes + 1)
        self.classes, self.samples = classes, samples

    def draw(self, stream):
        drawn, tries = {}, 0
        while len(drawn) < self.samples:
            drawn[zipf(stream.random(), self.classes)] = True
            tries += 1
        return torch.tensor(list(drawn)), torch.log(-torch.expm1(tries * torch.log1p(-self.chance))).float()


class Model(torch.nn.Module):
    def __init__(self, args):
        super().__init__()
        self.words = torch.nn.Embedding(args.vocabulary, args.width, sparse=True)
        self.classes = torch.nn.Embedding(args.vocabulary, args.width + 1, sparse=True)  # weights, then the bias
        self.lstm = torch.nn.LSTM(args.width, args.hidden, proj_size=args.width if args.width != args.hidden else 0)
        for table in self.words, self.classes:
            torch.nn.init.uniform_(table.weight, -0.05, 0.05)
        for name, p in self.lstm.named_parameters():
            if "bias" in name:
                torch.nn.init.zeros_(p)
            else:
                torch.nn.init.xavier_uniform_(p)
        with torch.no_grad():
            self.lstm.bias_ih_l0[args.hidden:2 * args.hidden] = 1  # cells keep their contents at first
        self.lstm.bias_hh_l0.requires_grad = False  # one bias is enough

    def forward(self, words, targets, state, drawn, logs):
        out, state = self.lstm(self.words(words), state)
        out, targets = out.flatten(0, 1), targets.flatten()
        own, others = self.classes(targets), self.classes(drawn)
        right = (out * own[:, :-1]).sum(1) + own[:, -1]
        wrong = out @ others[:, :-1].T + others[:, -1] - logs[drawn]
        wrong = wrong.masked_fill(targets[:, None] == drawn, -math.inf)  # a row's own word is not wrong

        def entropy(right):
            return (torch.logsumexp(torch.cat([right[:, None], wrong], 1), 1) - right).mean()
        return entropy(right - logs[targets]), entropy(right.detach()).detach(), state


def clip(parameters, most):
    """Scales all gradients down to a global norm, sparse ones too."""
    gradients = [p.grad.coalesce().values() if p.grad.is_sparse else p.grad for p in parameters if p.grad is not None]
    norm = torch.sqrt(sum((g ** 2).sum() for g in gradients))
    for p in parameters:
        if p.grad is not None and norm > most:
            p.grad = p.grad * (most / norm)


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--text", help="a sentence on each line")
    p.add_argument("--words", help="its vocabulary: a word on each line, the most frequent first")
    for name, default in (("vocabulary", 10000), ("width", 128), ("hidden", 128), ("length", 20), ("batch-size", 32),
                          ("samples", 512), ("steps", 500), ("every", 50), ("seed", 0)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--learning-rate", type=float, default=0.05)
    args = p.parse_args()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if args.batch_size % world:
        raise SystemExit(f"--batch-size is {args.batch_size}: want a multiple of {world} ranks")
    if world > 1:
        dist.init_process_group("gloo")
    if args.text:
        text, args.vocabulary = read_text(args.text, args.words, args.vocabulary, args.batch_size)
    else:
        text = made_text(args.seed, args.vocabulary)
    rows = args.batch_size // world
    texts = [text(rank * rows + i) for i in range(rows)]
    last = [next(t) for t in texts]
    sampler = Sampler(args.vocabulary, args.samples)
    torch.manual_seed(args.seed)
    single = Model(args)
    model = DistributedDataParallel(single) if world > 1 else single
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.Adagrad(trained, lr=args.learning_rate, initial_accumulator_value=1e-6)
    warm = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, (step + 1) / 50))
    state = torch.zeros(1, rows, args.width), torch.zeros(1, rows, args.hidden)
    total, steps, since = torch.zeros(1), 0, time.time()
    for step in range(args.steps):
        read = [[word] + [next(t) for _ in range(args.length)] for t, word in zip(texts, last)]
        last = [row[-1] for row in read]
        words = torch.tensor(read).T  # (length + 1, rows)
        drawn, logs = sampler.draw(random.Random(f"{args.seed} samples {step} {rank}"))
        loss, entropy, state = model(words[:-1], words[1:], state, drawn, logs)
        optimiser.zero_grad()
        loss.backward()
        clip(trained, 1)
        optimiser.step()
        warm.step()
        state = tuple(s.detach() for s in state)  # the text goes on in the next step
        total, steps = total + entropy, steps + 1
        if step == 0 or (args.steps - 1 - step) % args.every == 0:
            whole = torch.stack([loss.detach(), total[0] / steps])
            if world > 1:
                dist.all_reduce(whole)
            if rank == 0:
                rate = steps * args.batch_size * args.length / (time.time() - since)
                print(f"step {step} | loss {whole[0] / world:.4f} | perplexity {math.exp(whole[1] / world):.2f} | words/s {rate:.0f}", flush=True)
            total, steps, since = torch.zeros(1), 0, time.time()
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
