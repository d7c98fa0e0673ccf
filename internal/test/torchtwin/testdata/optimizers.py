"""The twin of a model whose gradients are the numbers that it is fed, for each optimiser of PyTorch's."""
import torch
import twin


class Decoupled:
    """Shrinks the variables before each step of an optimiser, which AdamW alone does by itself."""

    def __init__(self, optimiser, decay):
        self.optimiser, self.decay = optimiser, decay

    def zero_grad(self):
        self.optimiser.zero_grad()

    @torch.no_grad()
    def step(self):
        for group in self.optimiser.param_groups:
            for p in group["params"]:
                p.mul_(1 - group["lr"] * self.decay)
        self.optimiser.step()


class Clipped:
    """Clips by PyTorch's own function before each step."""

    def __init__(self, optimiser, most):
        self.optimiser, self.most = optimiser, most

    def zero_grad(self):
        self.optimiser.zero_grad()

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.optimiser.param_groups[0]["params"], self.most)
        self.optimiser.step()


class Given(twin.Twin):
    def __init__(self, settings):
        super().__init__()
        self.settings, self.clip = settings, settings.get("clip")
        if settings["table"]:
            self.t = torch.nn.Embedding(9, 3, sparse=True)
            self.weights = {"t": (self.t.weight, False)}
        else:
            self.a, self.b = torch.nn.Parameter(torch.empty(12, 1)), torch.nn.Parameter(torch.empty(5, 1))
            self.weights = {"a": (self.a, False), "b": (self.b, False)}

    def loss(self, feed):
        if self.settings["table"]:
            return (self.t(feed["row"]) * feed["z"]).sum()
        return (feed["x"] @ self.a).sum() + (feed["y"] @ self.b).sum()

    def optimiser(self, parameters):
        s = self.settings
        optimiser = getattr(torch.optim, s["optimiser"])(parameters, **s["arguments"])
        if "decoupled" in s:
            return Decoupled(optimiser, s["decoupled"])
        return Clipped(optimiser, s["clip_grad_norm_"]) if "clip_grad_norm_" in s else optimiser

    def schedule(self, optimiser):
        parts = [getattr(torch.optim.lr_scheduler, name)(optimiser, **arguments) for name, arguments in self.settings.get("schedule", [])]
        if len(parts) < 2:
            return parts[0] if parts else None
        return torch.optim.lr_scheduler.SequentialLR(optimiser, parts, milestones=self.settings["milestones"])


twin.main(Given)
