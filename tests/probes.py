"""Callbacks that watch a run from outside, for tests; configured like a user's own."""

import os
import signal

import lightning.pytorch as pl
import torch


class KillAt(pl.Callback):
    """Sends the process TOY_SIGNAL, by default a hard kill, at the start of the step that TOY_KILL_AT names."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if os.environ.get("TOY_KILL_AT") == str(trainer.global_step):
            os.kill(os.getpid(), signal.Signals[os.environ.get("TOY_SIGNAL", "SIGKILL")])


class RecordBatches(pl.Callback):
    """Writes down which problems and replay items each step got."""

    def __init__(self):
        self.seen = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        problems = [(n.index, n.problem.id) for chunk in batch.chunks for n in chunk]
        self.seen.append((trainer.global_step, problems, [(item.prompt, item.response) for item in batch.replay]))


class RecordGradients(pl.Callback):
    """Saves the gradient of each step in the folder that TOY_GRADIENTS names."""

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        if trainer.is_global_zero:
            gradient = torch.cat([p.grad.flatten() for p in pl_module.parameters()])
            torch.save(gradient, os.path.join(os.environ["TOY_GRADIENTS"], f"{trainer.global_step}.pt"))


class RecordTokens(pl.Callback):
    """Writes down how many tokens each step was given to replay; the toy's responses have a token a byte and an end."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        with open(os.path.join(trainer.default_root_dir, "tokens.jsonl"), "a") as file:
            file.write(f'{{"replayed": {sum(len(item.response) + 1 for item in batch.replay)}}}\n')
