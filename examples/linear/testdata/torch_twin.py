"""The model of examples/linear in PyTorch, which a test of the example compares with plx's."""
import torch
import twin


class Linear(twin.Twin):
    def __init__(self, settings):
        super().__init__()
        self.line = self.linear(torch.nn.Linear(1, 1), "W", "b")

    def loss(self, feed):
        return torch.nn.functional.mse_loss(self.line(feed["x"]), feed["y"])

    def optimiser(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)


twin.main(Linear)
