"""Trains in PyTorch what a test has trained with plx, from the same values on the same batches.

A script defines a model and calls main:

    python3 torch.py IN OUT float32|float64 [IN OUT ...]
"""
import json
import struct
import sys

import numpy
import torch

TYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}
NAMES = {torch.float32: "F32", torch.float64: "F64"}


def load(path):
    """Reads a safetensors file: its tensors by name, and the settings."""
    with open(path, "rb") as f:
        data = f.read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    settings = json.loads(header.pop("__metadata__")["settings"])
    tensors = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        values = numpy.frombuffer(data[start + begin:start + end], TYPES[t["dtype"]])
        tensors[name] = torch.from_numpy(values.reshape(t["shape"]).copy())
    return tensors, settings


def save(path, tensors):
    """Writes a safetensors file."""
    header, parts, at = {"__metadata__": {"compared": json.dumps(list(tensors))}}, [], 0
    for name, t in tensors.items():
        data = t.detach().contiguous().numpy().astype(TYPES[NAMES[t.dtype]]).tobytes()
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


class Twin(torch.nn.Module):
    """A model. weights holds, by plx's name, a parameter or buffer, and whether plx has it transposed."""

    clip = None  # largest global norm of the gradient

    def __init__(self):
        super().__init__()
        self.weights = {}

    def linear(self, layer, weight, bias=None):
        """Names the weights of a layer that plx has as (features, units)."""
        self.weights[weight] = layer.weight, True
        if bias:
            self.weights[bias] = layer.bias, False
        return layer

    def schedule(self, optimiser):
        """Returns the schedule of the learning rate; None: it is constant."""

    def last(self, name, value, first, steps):
        """Returns a value after the last step as plx defines it."""
        return value


def view(tensor, transposed):
    return tensor.T if transposed else tensor


def dense(gradient):
    return gradient.to_dense() if gradient.is_sparse else gradient


def clip(parameters, most):
    """Scales all gradients down to a global norm, sparse ones too. Unlike clip_grad_norm_, it adds no 1e-6 to the norm."""
    gradients = [p.grad.coalesce().values() if p.grad.is_sparse else p.grad for p in parameters]
    norm = torch.sqrt(sum((g.double() ** 2).sum() for g in gradients)).item()
    if norm > most:
        for p in parameters:
            p.grad = p.grad * (most / norm)


def train(build, given, settings, dtype):
    torch.set_default_dtype(dtype)
    given = {name: t.to(dtype) if t.is_floating_point() else t for name, t in given.items()}
    model = build(settings)
    model.train()
    first = {name[6:]: t for name, t in given.items() if name.startswith("first/")}
    if set(first) != set(model.weights):
        raise SystemExit(f"plx has the variables {sorted(first)}, the twin {sorted(model.weights)}")
    for name, (tensor, transposed) in model.weights.items():
        into = view(tensor.data, transposed)
        if into.shape != first[name].shape:
            raise SystemExit(f"{name}: plx has the shape {tuple(first[name].shape)}, the twin {tuple(into.shape)}")
        into.copy_(first[name])
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = model.optimiser(trained)
    schedule = model.schedule(optimiser)
    losses, out = [], {}
    for step in range(len(given["loss"])):
        prefix = f"feed/{step}/"
        feed = {name[len(prefix):]: t for name, t in given.items() if name.startswith(prefix)}
        optimiser.zero_grad()
        loss = model.loss(feed)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            for name, (tensor, transposed) in model.weights.items():
                if tensor.requires_grad:
                    out["gradient/" + name] = view(dense(tensor.grad), transposed).clone()
        if model.clip:
            clip(trained, model.clip)
        optimiser.step()
        if schedule:
            schedule.step()
    out["loss"] = torch.tensor(losses, dtype=torch.float64)
    for name, (tensor, transposed) in model.weights.items():
        out["last/" + name] = model.last(name, view(tensor.data, transposed), first[name], len(losses))
    return out


def main(build):
    arguments = iter(sys.argv[1:])
    for given, out, dtype in zip(arguments, arguments, arguments):
        tensors, settings = load(given)
        save(out, train(build, tensors, settings, getattr(torch, dtype)))
