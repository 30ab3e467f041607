"""A small config of R2D2 for tests of sequences."""

from typing import Any

from apex_agents.r2d2.config import R2D2Config
from apex_agents.replay.config import ReplayConfig


def make_config(**changes: Any) -> R2D2Config:
    settings = {
        "torso": "mlp",
        "mlp_hidden_sizes": (8,),
        "core_size": 5,
        "stream_hidden_size": 7,
        "frame_stack": 0,
        "sequence_length": 8,
        "burn_in_length": 4,
        "sequence_period": 4,
        "n_step": 2,
        "discount": 0.9,
        "batch_size": 5,
        "replay": ReplayConfig(max_size=1000, min_size=1, priority_exponent=0.0),
    }
    return R2D2Config(**{**settings, **changes})
