"""The model of examples/resnet in PyTorch, which a test of the example compares with plx's."""
import torch
import twin


class ResNet(twin.Twin):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.norms, self.elements = {}, {}  # elements: by layer, number of elements of a channel, of which batch norm takes mean and variance
        self.layers = torch.nn.ModuleList()
        self.stem = self.unit("stem", 3, 64, 7, 2)
        self.blocks, channels = [], 64
        for stage, blocks in enumerate(settings["blocks"]):
            for i in range(blocks):
                width, stride = 64 << stage, 2 if stage > 0 and i == 0 else 1
                self.blocks.append(self.block(f"stage{stage + 1}.{i}", channels, width, stride))
                channels = self.blocks[-1][2]
        self.classes = self.linear(torch.nn.Linear(channels, settings["classes"]), "classes.w", "classes.b")

    def unit(self, name, channels, filters, size, stride):
        conv = torch.nn.Conv2d(channels, filters, size, stride, size // 2, bias=False)
        norm = torch.nn.BatchNorm2d(filters, eps=1e-5, momentum=0.1)
        self.layers.extend([conv, norm])
        for key, tensor in {".w": conv.weight, ".norm.scale": norm.weight, ".norm.bias": norm.bias,
                            ".norm.mean": norm.running_mean, ".norm.variance": norm.running_var}.items():
            self.weights[name + key] = tensor, False

        def run(x):
            y = conv(x)
            self.elements[name + ".norm.variance"] = y.shape[0] * y.shape[2] * y.shape[3]
            return norm(y)
        return run

    def block(self, name, channels, width, stride):
        if self.settings["bottleneck"]:
            out = 4 * width
            units = [self.unit(name + ".1", channels, width, 1, 1), self.unit(name + ".2", width, width, 3, stride),
                     self.unit(name + ".3", width, out, 1, 1)]
        else:
            out = width
            units = [self.unit(name + ".1", channels, width, 3, stride), self.unit(name + ".2", width, width, 3, 1)]
        project = None
        if stride > 1 or channels != out:
            project = self.unit(name + ".project", channels, out, 1, stride)
        return units, project, out

    def loss(self, feed):
        h = torch.max_pool2d(torch.relu(self.stem(feed["x"])), 3, 2, 1)
        for units, project, _ in self.blocks:
            y = h
            for unit in units[:-1]:
                y = torch.relu(unit(y))
            h = torch.relu(units[-1](y) + (project(h) if project else h))
        logits = self.classes(h.mean((2, 3)))
        return torch.nn.functional.cross_entropy(logits, feed["y"], label_smoothing=self.settings["smoothing"])

    def optimiser(self, parameters):
        return torch.optim.SGD(parameters, lr=self.settings["rate"], momentum=0.9, weight_decay=self.settings["decay"])

    def last(self, name, value, first, steps):
        if not name.endswith(".variance"):
            return value
        # PyTorch's running variance divides by n-1 elements, plx's by n.
        kept, n = 0.9 ** steps * first, self.elements[name]
        return kept + (value - kept) * (n - 1) / n


twin.main(ResNet)
