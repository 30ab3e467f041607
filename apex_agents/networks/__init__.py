"""What agents' networks are made of, and the tools for a torso of one's own."""

from apex_agents.networks.normalization import RunningNormalization
from apex_agents.networks.observations import to_image, to_parts, to_vector

__all__ = ["RunningNormalization", "to_image", "to_parts", "to_vector"]
