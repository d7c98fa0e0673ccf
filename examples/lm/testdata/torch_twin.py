"""The model of examples/lm in PyTorch, which a test of the example compares with plx's. The test passes the samples of the softmax."""
import math

import torch
import twin


class LM(twin.Twin):
    clip = 1

    def __init__(self, settings):
        super().__init__()
        vocabulary, width, hidden = settings["vocabulary"], settings["width"], settings["hidden"]
        self.length, self.rate, self.warm = settings["length"], settings["rate"], settings["warm"]
        self.words = torch.nn.Embedding(vocabulary, width, sparse=True)
        self.classes = torch.nn.Embedding(vocabulary, width + 1, sparse=True)  # weights, then the bias
        self.lstm = torch.nn.LSTM(width, hidden, batch_first=True, proj_size=width if width != hidden else 0)
        self.weights = {"words": (self.words.weight, False), "classes": (self.classes.weight, False),
                        "lstm.input": (self.lstm.weight_ih_l0, True), "lstm.state": (self.lstm.weight_hh_l0, True),
                        "lstm.bias": (self.lstm.bias_ih_l0, False)}
        if width != hidden:
            self.weights["lstm.projection"] = self.lstm.weight_hr_l0, True
        with torch.no_grad():  # the second bias is plx's constant 1 for the forget gate
            self.lstm.bias_hh_l0.zero_()
            self.lstm.bias_hh_l0[hidden:2 * hidden] = 1
        self.lstm.bias_hh_l0.requires_grad = False
        rows = settings["batch"]
        self.state = torch.zeros(1, rows, width), torch.zeros(1, rows, hidden)

    def loss(self, feed):
        x = self.words(feed["word"]).unflatten(0, (-1, self.length))
        out, state = self.lstm(x, self.state)
        self.state = tuple(s.detach() for s in state)
        out = out.flatten(0, 1)
        own, others = self.classes(feed["target"]), self.classes(feed["sample"])
        right = (out * own[:, :-1]).sum(1) + own[:, -1] - feed["label log"]
        wrong = out @ others[:, :-1].T + others[:, -1] - feed["class log"]
        wrong = wrong.masked_fill(feed["label"][:, None] == feed["class"], -math.inf)  # a sample that equals the row's own label is not wrong
        return torch.nn.functional.cross_entropy(torch.cat([right[:, None], wrong], 1), torch.zeros(len(right), dtype=torch.long))

    def optimiser(self, parameters):
        return torch.optim.Adagrad(parameters, lr=self.rate, initial_accumulator_value=1e-6)

    def schedule(self, optimiser):
        return torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, (step + 1) / (self.warm + 1)))


twin.main(LM)
