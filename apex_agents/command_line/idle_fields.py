"""Fields that a command line sets although no other setting lets anything read them."""

from collections.abc import Collection, Iterator
from typing import Any

from apex_agents.validation import field_paths, get_field

_CONV = ("agent.torso", ("conv", "auto"))
_ATARI = ("environment.suite", ("atari",))
# By the field that is read: another field, and its values with which it is. A function of the
# user's, 'module:function', may read anything.
READ_WITH: dict[str, tuple[str, tuple[Any, ...]]] = {
    "agent.conv_channels": _CONV,
    "agent.conv_kernel_sizes": _CONV,
    "agent.conv_strides": _CONV,
    "agent.mlp_hidden_sizes": ("agent.torso", ("mlp", "conv", "auto")),
    "agent.num_quantiles": ("agent.head", ("quantile",)),
    "agent.adam_epsilon": ("agent.optimizer", ("adam",)),
    "agent.learning_rate_steps": ("agent.optimizer", ("adam",)),
    "agent.rmsprop_decay": ("agent.optimizer", ("rmsprop",)),
    "agent.rmsprop_epsilon": ("agent.optimizer", ("rmsprop",)),
    "agent.num_atoms": ("agent.critic", ("quantile", "categorical")),
    "agent.min_return": ("agent.critic", ("categorical",)),
    "agent.max_return": ("agent.critic", ("categorical",)),
    "agent.exploration.alpha": ("agent.exploration.annealing_steps", (None,)),
    "agent.exploration.num_distinct_epsilons": ("agent.exploration.annealing_steps", (None,)),
    "agent.replay.eviction_exponent": ("agent.replay.eviction_policy", ("prioritized",)),
    "environment.atari.*": _ATARI,
}


def find_idle_fields(
    config: Any, given: Collection[str], varied: Collection[str] = ()
) -> Iterator[str]:
    """Say of each field that was given, but that nothing reads, why that is so.

    Args:
      config: settings of the experiment.
      given: dotted paths of fields.
      varied: those which get several values, one in each run.

    Yields:
      A sentence for each of them.
    """
    known = field_paths(config)
    if ":" in getattr(config.agent, "builder", ""):  # It may read anything.
        return
    for path in given:
        other, values = READ_WITH.get(path) or READ_WITH.get(
            f"{path.rpartition('.')[0]}.*", ("", ())
        )
        if other not in known or other in varied:
            continue
        value = get_field(config, other)
        if value not in values and ":" not in str(value):
            readers = " or ".join(repr(value) for value in values)
            yield f"--config.{path} has no effect: {other} is {value!r}, not {readers}."
