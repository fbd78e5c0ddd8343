"""The gradient of each term apart on two ranks, sharded and not; apart, for its processes to start soon."""

import gc

import pytest
import torch
from torch import nn

from elite_lightning.term_gradients import TermGradients


def ranked_worker(rank, folder):
    """One of two ranks: weights that are sharded, and gradients that are exchanged at the end."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    results = {"sharded": sharded_metrics(rank), "copied": copied_metrics(rank)}
    gc.collect()
    torch.distributed.destroy_process_group()
    torch.save(results, folder / f"rank{rank}.pt")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 1))


def term_losses(model, rank):
    """Two terms on the rows of one rank, in two micro-batches each."""
    rows = torch.arange(40, dtype=torch.float32).view(8, 5).sin()[4 * rank : 4 * rank + 4]
    return {
        "policy": [model(rows[:2]).square().sum(), model(rows[2:]).square().sum()],
        "replay": [model(rows[:1]).sum(), model(rows[1:]).exp().sum()],
    }


def sharded_metrics(rank):
    from torch.distributed.fsdp import fully_shard

    model = network()
    fully_shard(model[0])
    fully_shard(model)
    gradients = TermGradients(model.parameters())
    for name in ("policy", "replay"):
        for micro_batch in (0, 1):
            term_losses(model, rank)[name][micro_batch].backward()
        gradients.note(name, is_last=name == "replay")
    return gradients.metrics


def copied_metrics(rank):
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(network())

    def average(gradient):
        torch.distributed.all_reduce(gradient)
        return gradient / 2

    gradients = TermGradients(model.parameters(), average)
    for name in ("policy", "replay"):
        for micro_batch in (0, 1):
            if (name, micro_batch) == ("replay", 1):
                term_losses(model, rank)[name][micro_batch].backward()
            else:
                with model.no_sync():
                    term_losses(model, rank)[name][micro_batch].backward()
        gradients.note(name, is_last=name == "replay")
    return gradients.metrics


def flat_gradient(policy, loss):
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])


def test_two_ranks_with_sharded_or_copied_weights_measure_what_one_does(tmp_path):
    model = network()
    own = [term_losses(model, rank) for rank in (0, 1)]
    policy, replay = (flat_gradient(model, sum(losses[n][0] + losses[n][1] for losses in own) / 2) for n in own[0])
    expected = {
        "gradient_norm_policy": policy.norm().item(),
        "gradient_norm_replay": replay.norm().item(),
        "gradient_cosine": torch.cosine_similarity(policy, replay, dim=0).item(),
    }
    torch.multiprocessing.spawn(ranked_worker, (tmp_path,), nprocs=2)
    for rank in (0, 1):
        for metrics in torch.load(tmp_path / f"rank{rank}.pt", weights_only=False).values():
            assert metrics == pytest.approx(expected, rel=1e-5)
