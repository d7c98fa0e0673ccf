"""The model of examples/inception in PyTorch, which a test of the example compares with plx's: Inception-v3 without an auxiliary classifier."""
import torch
import twin

SAME, WIDE3, TALL3, WIDE7, TALL7 = (1, 1), (1, 3), (3, 1), (1, 7), (7, 1)  # height and width of a window


class Inception(twin.Twin):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.layers = torch.nn.ModuleDict()  # by name, with - for a dot
        self.elements = {}  # elements: by layer, number of elements of a channel, of which batch norm takes mean and variance
        # One run creates the layers: conv and logits create every layer that does not exist yet.
        self.logits(torch.ones(2, 3, settings["size"], settings["size"]))

    def conv(self, name, x, filters, size, stride=1, pad=None):
        """A convolution without a bias, a batch norm and a rectifier. Without pad, a picture keeps its size."""
        key = name.replace(".", "-")
        if key not in self.layers:
            if pad is None:
                pad = size[0] // 2, size[1] // 2
            conv = torch.nn.Conv2d(x.shape[1], filters, size, stride, pad, bias=False)
            norm = torch.nn.BatchNorm2d(filters, eps=1e-3, momentum=0.1)
            self.layers[key] = torch.nn.Sequential(conv, norm, torch.nn.ReLU())
            for end, tensor in {".w": conv.weight, ".norm.scale": norm.weight, ".norm.bias": norm.bias,
                                ".norm.mean": norm.running_mean, ".norm.variance": norm.running_var}.items():
                self.weights[name + end] = tensor, False
        y = self.layers[key](x)
        self.elements[name + ".norm.variance"] = y.shape[0] * y.shape[2] * y.shape[3]
        return y

    def chain(self, name, x, *units):
        """Convolutions one after the other, each with its filters and its window."""
        for i, unit in enumerate(units):
            x = self.conv(f"{name}.{i}", x, *unit)
        return x

    def pooled(self, name, x, filters):
        # The padding does not count in the mean, as in TensorFlow, from which the network is taken.
        mean = torch.nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return self.conv(name, mean, filters, SAME)

    def fine(self, name, x, filters):
        return torch.cat([
            self.conv(name + ".1", x, 64, SAME),
            self.chain(name + ".2", x, (48, SAME), (64, (5, 5))),
            self.chain(name + ".3", x, (64, SAME), (96, (3, 3)), (96, (3, 3))),
            self.pooled(name + ".4", x, filters)], 1)

    def factored(self, name, x, width):
        return torch.cat([
            self.conv(name + ".1", x, 192, SAME),
            self.chain(name + ".2", x, (width, SAME), (width, WIDE7), (192, TALL7)),
            self.chain(name + ".3", x, (width, SAME), (width, TALL7), (width, WIDE7), (width, TALL7), (192, WIDE7)),
            self.pooled(name + ".4", x, 192)], 1)

    def coarse(self, name, x):
        short = self.conv(name + ".2", x, 384, SAME)
        long = self.chain(name + ".3", x, (448, SAME), (384, (3, 3)))
        branches = [self.conv(name + ".1", x, 320, SAME)]
        for branch, h in ((".2", short), (".3", long)):
            branches += [self.conv(name + branch + ".wide", h, 384, WIDE3), self.conv(name + branch + ".tall", h, 384, TALL3)]
        return torch.cat(branches + [self.pooled(name + ".4", x, 192)], 1)

    def logits(self, x):
        h = self.conv("stem.1", x, 32, (3, 3), 2, 0)
        h = self.conv("stem.2", h, 32, (3, 3), 1, 0)
        h = torch.max_pool2d(self.conv("stem.3", h, 64, (3, 3)), 3, 2)
        h = self.conv("stem.4", h, 80, SAME)
        h = torch.max_pool2d(self.conv("stem.5", h, 192, (3, 3), 1, 0), 3, 2)
        for i, filters in enumerate((32, 64, 64)):
            h = self.fine(f"fine{i}", h, filters)
        h = torch.cat([
            self.conv("shrink0.1", h, 384, (3, 3), 2, 0),
            self.chain("shrink0.2", h, (64, SAME), (96, (3, 3)), (96, (3, 3), 2, 0)),
            torch.max_pool2d(h, 3, 2)], 1)
        for i, width in enumerate((128, 160, 160, 192)):
            h = self.factored(f"factored{i}", h, width)
        h = torch.cat([
            self.chain("shrink1.1", h, (192, SAME), (320, (3, 3), 2, 0)),
            self.chain("shrink1.2", h, (192, SAME), (192, WIDE7), (192, TALL7), (192, (3, 3), 2, 0)),
            torch.max_pool2d(h, 3, 2)], 1)
        for i in range(2):
            h = self.coarse(f"coarse{i}", h)
        h = h.mean((2, 3))
        if "classes" not in self.layers:
            self.layers["classes"] = self.linear(torch.nn.Linear(h.shape[1], self.settings["classes"]), "classes.w", "classes.b")
        return self.layers["classes"](h)

    def loss(self, feed):
        return torch.nn.functional.cross_entropy(self.logits(feed["x"]), feed["y"])

    def optimiser(self, parameters):
        return torch.optim.SGD(parameters, lr=self.settings["rate"], momentum=0.9, weight_decay=self.settings["decay"])

    def last(self, name, value, first, steps):
        if not name.endswith(".variance"):
            return value
        # PyTorch's running variance divides by n-1 elements, plx's by n.
        kept, n = 0.9 ** steps * first, self.elements[name]
        return kept + (value - kept) * (n - 1) / n


twin.main(Inception)
