"""The memory tasks of bsuite, which has to be installed: one bit to remember, for as long as given.

apex-r2d2 --config=r2d2_bsuite --config.environment.kwargs.memory_length=30

A sequence has to have the step of the bit and that of the answer: with a memory_length of 50 or
more, agent.sequence_length has to be longer than that.
"""

from apex_agents.config import ExperimentConfig, TaskReturn
from apex_agents.presets import load_config

_TASK = "bsuite.environments.memory_chain:MemoryChain"


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("r2d2_popgym")
    config.environment.suite = "function"
    config.environment.task = _TASK
    config.environment.kwargs = {"memory_length": 10, "num_bits": 1}
    config.run.target_return = TaskReturn(0.95, _TASK)
    return config
