"""The model of examples/cifar in PyTorch, which a test of the example compares with plx's."""
import math

import torch
import twin


class CIFAR(twin.Twin):
    def __init__(self, settings):
        super().__init__()
        first, second = settings["filters"]
        self.conv1 = torch.nn.Conv2d(3, first, 3, padding=1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(first, eps=1e-5, momentum=0.1)
        self.conv2 = torch.nn.Conv2d(first, second, 3, padding=1)
        self.linear1 = self.linear(torch.nn.Linear(second * 8 * 8, settings["hidden"]), "linear1.w", "linear1.b")
        self.linear2 = self.linear(torch.nn.Linear(settings["hidden"], 10), "linear2.w", "linear2.b")
        for name, tensor in {"conv1.w": self.conv1.weight, "conv2.w": self.conv2.weight, "conv2.b": self.conv2.bias,
                             "norm1.scale": self.norm1.weight, "norm1.bias": self.norm1.bias,
                             "norm1.mean": self.norm1.running_mean, "norm1.variance": self.norm1.running_var}.items():
            self.weights[name] = tensor, False
        self.rate, self.warm, self.total = settings["rate"], settings["warm"], settings["steps"]
        self.elements = settings["batch"] * 32 * 32  # number of elements of a channel, of which batch norm takes mean and variance
        self.clip = settings["clip"]

    def loss(self, feed):
        h = torch.max_pool2d(torch.relu(self.norm1(self.conv1(feed["x"]))), 2)
        h = torch.max_pool2d(torch.relu(self.conv2(h)), 2)
        return torch.nn.functional.cross_entropy(self.linear2(torch.relu(self.linear1(h.flatten(1)))), feed["y"])

    def optimiser(self, parameters):
        return torch.optim.Adam(parameters, lr=self.rate)

    def schedule(self, optimiser):
        def part(step):
            if step < self.warm:
                return (step + 1) / (self.warm + 1)
            return (1 + math.cos(math.pi * (step - self.warm) / (self.total - self.warm))) / 2
        return torch.optim.lr_scheduler.LambdaLR(optimiser, part)

    def last(self, name, value, first, steps):
        if name != "norm1.variance":
            return value
        # PyTorch's running variance divides by n-1 elements, plx's by n.
        kept = 0.9 ** steps * first
        return kept + (value - kept) * (self.elements - 1) / self.elements


twin.main(CIFAR)
