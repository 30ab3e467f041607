"""The settings of Atari: the preprocessing (section 4.1, appendix C) and the names of games."""

import dataclasses
import re
from typing import Annotated

from ale_py import roms
from pydantic import Field

from apex_agents.validation import closest

_MAX_EMULATOR_INT = 2**31 - 1


@dataclasses.dataclass
class AtariConfig:
    """Atari as in the paper (Horgan et al. 2018); "DQN" is Mnih et al. 2015.

    Attributes:
      sticky_action_probability: probability, per frame, that the emulator repeats the previous
        action instead of the given one; the paper has no sticky actions, no-op starts only.
      full_action_set: whether all 18 actions are offered rather than those that the game uses, as
        in DQN.
      life_loss_ends_episode: whether the loss of a life ends the agent's episode; the paper does
        not say. The game continues, and its `Episode` ends when it is over. In evaluations
        episodes are games; after a lost life come a no-op and black frames, as in training.
      clip_rewards: whether the agent's rewards are clipped to [-1, 1]; appendix C.
      max_noops: largest number of no-op frames at the start of a game, drawn uniformly from 0 on;
        section 4.1 names these starts for evaluation, their number is DQN's.
      action_repeat: number of frames for which an action is held; appendix C. An observation is the
        maximum of the last two frames, as in DQN.
      frame_stack: number of frames stacked in an observation, oldest first; appendix C, the number
        is DQN's.
      frame_size: height and width of an observation in pixels; DQN's.
      max_frames: number of frames after which a training episode is truncated, without those of
        the no-op start; section 4.1.
      evaluation_max_frames: the same for evaluation; table 2 says only that it is more than in
        training, these 30 minutes are those of Rainbow (Hessel et al. 2018).
      num_threads: number of threads that step the emulators of one actor; the paper gives every
        actor one core.
    """

    sticky_action_probability: Annotated[float, Field(ge=0, lt=1)] = 0.0
    full_action_set: bool = False
    life_loss_ends_episode: bool = False
    clip_rewards: bool = True
    max_noops: Annotated[int, Field(ge=0, le=10_000)] = 30
    action_repeat: Annotated[int, Field(ge=1, le=1_000)] = 4
    frame_stack: Annotated[int, Field(ge=1, le=100)] = 4
    frame_size: Annotated[int, Field(ge=1, le=1_000)] = 84
    max_frames: Annotated[int, Field(ge=1, le=_MAX_EMULATOR_INT)] = 50_000
    evaluation_max_frames: Annotated[int, Field(ge=1, le=_MAX_EMULATOR_INT)] = 108_000
    num_threads: Annotated[int, Field(ge=1, le=1_000)] = 1


def rom_name(task: str) -> str:
    """Find the ROM ('ms_pacman') of a game, named as it or as in gymnasium ('MsPacman').

    Raises:
      ValueError: there is no such game; names the closest ones.
    """
    names = {_key(rom): rom for rom in roms.get_all_rom_ids() if rom not in _TWO_PLAYER_ROMS}
    if _key(task) in names:
        return names[_key(task)]
    game = re.sub(r"-v\d+$", "", task.removeprefix("ALE/"))
    if _key(game) in names:
        raise ValueError(
            f"environment.task is {task!r}, an id of gymnasium, whose game has sticky actions and "
            f"no preprocessing; the suite 'atari' names the game alone: {names[_key(game)]!r}, "
            "with environment.atari.sticky_action_probability=0.25 for sticky actions."
        )
    raise ValueError(
        f"unknown Atari game {task!r}; closest: {closest(game.lower(), names.values())}; allowed: "
        f"one of the {len(names)} one-player games of ale_py.roms.get_all_rom_ids()"
    )


# The emulator ends the whole process when one of these is loaded for a single player.
_TWO_PLAYER_ROMS = frozenset({"combat", "joust", "maze_craze", "warlords"})


def _key(name: str) -> str:
    """Return what 'ms_pacman' and 'MsPacman' have in common."""
    return name.replace("_", "").lower()
