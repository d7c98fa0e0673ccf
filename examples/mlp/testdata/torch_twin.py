"""The model of examples/mlp in PyTorch, which a test of the example compares with plx's."""
import torch
import twin


class MLP(twin.Twin):
    def __init__(self, settings):
        super().__init__()
        widths = settings["widths"]
        layers = []
        for i in range(len(widths) - 1):
            if i > 0:
                layers.append(torch.nn.Tanh())
            layers.append(self.linear(torch.nn.Linear(widths[i], widths[i + 1], bias=False), f"w{i}"))
        self.layers = torch.nn.Sequential(*layers)
        self.rate, self.end, self.total = settings["rate"], 0.3, settings["steps"]

    def loss(self, feed):
        return torch.nn.functional.cross_entropy(self.layers(feed["x"]), feed["y"])

    def optimiser(self, parameters):
        return torch.optim.SGD(parameters, lr=self.rate)

    def schedule(self, optimiser):
        return torch.optim.lr_scheduler.LinearLR(optimiser, 1, self.end, self.total)


twin.main(MLP)
