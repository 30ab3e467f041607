"""What the nodes of a run take of a cluster's hosts."""

import dataclasses
import re

from apex_agents.validation import require, require_positive, require_types

_CUSTOM = re.compile(r"\s*([^\s=,]+)\s*=\s*(\d+(?:\.\d+)?)\s*")


@dataclasses.dataclass
class HostShare:
    """What one node takes of its host; a host without that much left does not get it.

    Attributes:
      num_cpus: cores.
      num_gpus: GPUs.
      custom: further resources that the hosts of the cluster declare, as 'NAME=AMOUNT,...'; such as
        'memory_host=1' for a node that belongs on a host with much memory.
    """

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    custom: str = ""

    def validate(self, prefix: str) -> None:
        """Raise a ValueError that names the first field with a value that cannot work."""
        require_types(self, prefix)
        require(self.num_cpus >= 0, f"{prefix}num_cpus", self.num_cpus, "at least 0")
        require(self.num_gpus >= 0, f"{prefix}num_gpus", self.num_gpus, "at least 0")
        parts = [part for part in self.custom.split(",") if part.strip()]
        is_valid = all(_CUSTOM.fullmatch(part) for part in parts)
        require(is_valid, f"{prefix}custom", self.custom, "like 'NAME=1,OTHER=0.5'")

    def resources(self) -> dict[str, float]:
        """Return the amounts by name, those of 0 left out."""
        custom = {name: float(amount) for name, amount in _CUSTOM.findall(self.custom)}
        amounts = {"CPU": self.num_cpus, "GPU": self.num_gpus, **custom}
        return {name: amount for name, amount in amounts.items() if amount}


@dataclasses.dataclass
class ClusterConfig:
    """Where the nodes of each group may be placed on a cluster; one machine ignores it.

    Attributes:
      replay: for the replay.
      learner: for the learner.
      evaluator: for the evaluator.
      actor: for each actor.
      wait_seconds: how long the run waits for hosts with room for all nodes before it gives up.
    """

    replay: HostShare = dataclasses.field(default_factory=HostShare)
    learner: HostShare = dataclasses.field(default_factory=HostShare)
    evaluator: HostShare = dataclasses.field(default_factory=HostShare)
    actor: HostShare = dataclasses.field(default_factory=HostShare)
    wait_seconds: float = 300.0

    def validate(self, prefix: str) -> None:
        """Raise a ValueError that names the first field with a value that cannot work."""
        require_types(self, prefix)
        require_positive(self, prefix, "wait_seconds")
        for group in ("replay", "learner", "evaluator", "actor"):
            self.share(group).validate(f"{prefix}{group}.")

    def share(self, group: str) -> HostShare:
        """Return what a node of this group takes."""
        return getattr(self, group)
