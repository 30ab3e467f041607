"""What can be chosen about Atari: the preprocessing (section 4.1, appendix C) and the game."""

import dataclasses
import difflib
import re

from ale_py import roms

from apex_agents.validation import require, require_between, require_types


@dataclasses.dataclass
class AtariConfig:
    """Atari as the paper plays it (Horgan et al. 2018); "DQN" is Mnih et al. 2015.

    Attributes:
      sticky_action_probability: probability, per frame, that the emulator repeats the previous
        action instead of the given one; the paper has none (no-op starts only).
      full_action_set: offer all 18 actions rather than those that the game uses; the paper
        does not say, DQN offers those that the game uses.
      life_loss_ends_episode: let the loss of a life end the agent's episode, in training only; the
        paper does not say. The game, and the `Episode` reported, go on until game over.
      clip_rewards: give the agent rewards clipped to [-1, 1]; appendix C.
      max_noops: a game starts with 0 to this many no-op frames, drawn uniformly; section 4.1 names
        these starts for evaluation, their number is DQN's.
      action_repeat: frames for which an action is held; appendix C. The observation is the
        maximum of the last two frames, as DQN's.
      frame_stack: observations stacked, oldest first; appendix C, their number is DQN's.
      frame_size: height and width of an observation, in pixels; DQN's.
      max_frames: frames after which a training episode is truncated, no-op frames not counted;
        section 4.1.
      evaluation_max_frames: the same in evaluation; table 2 says only that it is longer than in
        training, Rainbow (Hessel et al. 2018) plays for these 30 minutes.
      num_threads: threads that step the emulators of one group of environments; the paper gives
        every actor one core.
    """

    sticky_action_probability: float = 0.0
    full_action_set: bool = False
    life_loss_ends_episode: bool = False
    clip_rewards: bool = True
    max_noops: int = 30
    action_repeat: int = 4
    frame_stack: int = 4
    frame_size: int = 84
    max_frames: int = 50_000
    evaluation_max_frames: int = 108_000
    num_threads: int = 1

    def validate(self, prefix: str = "environment.atari.") -> None:
        """Raise a ValueError that names the first field with a value that cannot work."""
        require_types(self, prefix)
        probability = self.sticky_action_probability
        name = f"{prefix}sticky_action_probability"
        require(0.0 <= probability < 1.0, name, probability, "in [0, 1)")
        require_between(self, prefix, 0, 10_000, "max_noops")
        require_between(self, prefix, 1, 1_000, "action_repeat", "frame_size", "num_threads")
        require_between(self, prefix, 1, 100, "frame_stack")
        # The emulator's whole numbers have 32 bits.
        require_between(self, prefix, 1, 2**31 - 1, "max_frames", "evaluation_max_frames")


def rom_name(task: str) -> str:
    """Find the ROM of a game.

    Args:
      task: the name of a ROM ('ms_pacman'), or a gymnasium name of it ('MsPacman',
        'ALE/MsPacman-v5').

    Returns:
      The name of the ROM ('ms_pacman').

    Raises:
      ValueError: there is no such game; names the closest ones.
    """
    roms_by_key = {_key(rom): rom for rom in roms.get_all_rom_ids() if rom not in _TWO_PLAYER_ROMS}
    key = _key(re.sub(r"-v\d+$", "", task.removeprefix("ALE/")))
    if key in roms_by_key:
        return roms_by_key[key]
    closest = [roms_by_key[match] for match in difflib.get_close_matches(key, roms_by_key)]
    raise ValueError(
        f"unknown Atari game {task!r}; closest: {', '.join(closest) or 'none'}; allowed: one of "
        f"the {len(roms_by_key)} one-player games of ale_py.roms.get_all_rom_ids(), such as 'pong'"
    )


# The emulator ends the whole process when one of these is loaded for a single player.
_TWO_PLAYER_ROMS = frozenset({"combat", "joust", "maze_craze", "warlords"})


def _key(name: str) -> str:
    """Return what is common to 'ms_pacman' and 'MsPacman'."""
    return name.replace("_", "").lower()
