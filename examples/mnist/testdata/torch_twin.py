"""The model of examples/mnist in PyTorch, which a test of the example compares with plx's."""
import torch
import twin


class MNIST(twin.Twin):
    def __init__(self, settings):
        super().__init__()
        self.hidden = self.linear(torch.nn.Linear(784, 100), "w0", "b0")
        self.out = self.linear(torch.nn.Linear(100, 10), "w1", "b1")

    def loss(self, feed):
        logits = self.out(torch.relu(self.hidden(feed["x"])))
        return torch.nn.functional.cross_entropy(logits, feed["y"], reduction="sum")

    def optimiser(self, parameters):
        return torch.optim.Adagrad(parameters, lr=0.02, initial_accumulator_value=0.1)


twin.main(MNIST)
