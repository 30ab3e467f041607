"""The parts of agents' networks, and the tools for user-defined torsos."""

from apex_agents.networks.normalization import RunningNormalization
from apex_agents.networks.observations import to_image, to_parts, to_vector

__all__ = ["RunningNormalization", "to_image", "to_parts", "to_vector"]
