"""Tests of the Atari environments: with ale-py itself, and with a scripted emulator."""

from __future__ import annotations

import dataclasses
import itertools

import dm_env
import numpy as np
import pytest
from ale_py import ALEInterface, LoggerMode, roms
from gymnasium import spaces
from PIL import Image

from apex_agents.environments import AtariConfig, Episode
from apex_agents.environments.atari import AtariVectorEnvironment, make_emulators, rom_name

FIRST, MID, LAST = 0, 1, 2
FIRE = 1  # The action in Breakout; held all the time, it loses the five lives in some 150 steps.


def play(environment: AtariVectorEnvironment, actions: list[int]) -> list[dm_env.TimeStep]:
    """Reset, and step all environments with the same actions."""
    steps = [environment.reset()]
    return steps + [environment.step(np.full(environment.num_envs, action)) for action in actions]


def play_game(
    environment: AtariVectorEnvironment, action: int
) -> tuple[list[dm_env.TimeStep], Episode]:
    """Hold an action in one environment until a game is over; return steps and report."""
    steps = [environment.reset()]
    finished: list[Episode] = []
    while not finished:
        steps.append(environment.step(np.array([action])))
        finished = environment.finished_episodes()
    return steps, finished[0]


def make_actions(length: int, num_actions: int) -> list[int]:
    return np.random.default_rng(0).integers(num_actions, size=length).tolist()


def test_config_reaches_the_emulator():
    config = AtariConfig(full_action_set=True, frame_stack=2, frame_size=42, action_repeat=1)
    environment = AtariVectorEnvironment("pong", config, seeds=[1])
    assert environment.spec.actions.num_values == 18
    assert environment.spec.observations.shape == (2, 42, 42)


def average(size: int, parts: int) -> np.ndarray:
    """Return the matrix that averages `size` pixels to `parts`, by area: `[parts, size]`."""
    edges = np.linspace(0, size, parts + 1)
    pixels = np.arange(size)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.clip(overlap, 0, 1) * parts / size


def shrink(frame: np.ndarray) -> np.ndarray:
    """Average a frame `[210, 160]` to the agent's `[84, 84]`."""
    return average(210, 84) @ frame @ average(160, 84).T


@pytest.mark.parametrize("action_repeat", [2, 5])
def test_observation_is_the_maximum_of_the_last_two_frames_of_a_held_action(action_repeat):
    config = AtariConfig(action_repeat=action_repeat, max_noops=0, clip_rewards=False)
    environment = AtariVectorEnvironment("breakout", config, seeds=[1])
    environment.reset()
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path("breakout"))
    ale.reset_game()
    fire, left, right = 1, 3, 2  # Numbers among the game's four actions.
    differences = []
    for action in [fire, *[left] * 20, *[right] * 40]:
        timestep = environment.step(np.array([action]))
        frames, reward = [], 0
        for _ in range(action_repeat):
            reward += ale.act(ale.getMinimalActionSet()[action])
            frames.append(ale.getScreenGrayscale())
        seen = timestep.observation[0, -1]
        assert np.abs(shrink(np.maximum(*frames[-2:])) - seen).max() <= 1
        assert timestep.reward[0] == reward
        differences.append(np.abs(shrink(frames[-1]) - seen).max())
    assert max(differences) > 50  # The last frame alone would look different.


@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_pictures_show_the_games_of_the_agent(sticky):
    atari = AtariConfig(sticky_action_probability=sticky, evaluation_max_frames=400)
    environment = AtariVectorEnvironment(
        "breakout", atari, [1, 2, 3], evaluation=True, num_rendered=3
    )
    random = np.random.default_rng(1)
    environment.reset()
    for step in range(180):
        timestep = environment.step(random.integers(4, size=3))
        if step % 10:
            continue
        for i in range(3):
            grey = np.asarray(Image.fromarray(environment.render(i)).convert("L"))
            # Not 0: where things move over others, the maximum of colours has another grey than the
            # maximum of greys. A ball at another place is 300, a paddle 1500.
            differences = np.abs(timestep.observation[:, -1] - shrink(grey)).sum(axis=(1, 2))
            assert differences[i] < 300
            assert step < 120 or differences.argmin() == i  # The second games differ by then.


def test_a_step_after_a_game_over_starts_a_game():
    environment = AtariVectorEnvironment("breakout", AtariConfig(), seeds=[1])
    steps, episode = play_game(environment, FIRE)
    assert episode.length == len(steps) - 1
    assert episode.episode_return == sum(float(step.reward[0]) for step in steps)
    steps += [environment.step(np.array([FIRE])) for _ in range(2)]
    types = [int(step.step_type[0]) for step in steps]
    assert types == [FIRST, *[MID] * (episode.length - 1), LAST, FIRST, MID]
    discounts = [float(step.discount[0]) for step in steps]
    assert discounts == [*[1.0] * episode.length, 0.0, 1.0, 1.0]
    assert steps[-2].reward[0] == 0.0


def test_frames_are_stacked_from_the_first_step_on():
    environment = AtariVectorEnvironment("pong", AtariConfig(max_frames=40), seeds=[1, 2])
    steps = play(environment, make_actions(25, num_actions=6))
    assert [step.step_type[0] for step in steps].count(FIRST) == 3
    for previous, step in itertools.pairwise(steps):
        if step.step_type[0] == FIRST:
            assert not step.observation[:, :3].any()
            assert step.observation[:, 3].any()
        else:
            np.testing.assert_array_equal(step.observation[:, :3], previous.observation[:, 1:])


def test_frame_limit_truncates():
    environment = AtariVectorEnvironment("pong", AtariConfig(max_frames=40), seeds=[1, 2])
    steps = play(environment, [0] * 11)
    assert [int(step.step_type[1]) for step in steps] == [FIRST] + [MID] * 9 + [LAST, FIRST]
    assert [float(step.discount[1]) for step in steps] == [1.0] * 12
    assert environment.finished_episodes() == [Episode(0, 0.0, 0.0, 10), Episode(1, 0.0, 0.0, 10)]
    assert environment.finished_episodes() == []


def test_evaluation_has_its_own_frame_limit():
    config = AtariConfig(max_frames=40, evaluation_max_frames=20)
    environment = AtariVectorEnvironment("pong", config, seeds=[1], evaluation=True)
    assert [int(step.step_type[0]) for step in play(environment, [0] * 5)][-1] == LAST


def test_termination_wins_over_a_truncation_in_the_same_frame():
    _, episode = play_game(AtariVectorEnvironment("breakout", AtariConfig(), seeds=[1]), FIRE)
    # The game is over in one of the four frames of its last step. A limit before it truncates, a
    # limit in it or behind it does not.
    last_discounts = []
    for max_frames in range(4 * episode.length - 3, 4 * episode.length + 1):
        environment = AtariVectorEnvironment(
            "breakout", AtariConfig(max_frames=max_frames), seeds=[1]
        )
        steps, limited = play_game(environment, FIRE)
        assert limited.length == episode.length
        assert steps[-1].step_type[0] == LAST
        last_discounts.append(float(steps[-1].discount[0]))
    assert last_discounts == sorted(last_discounts, reverse=True)
    assert last_discounts[-1] == 0.0


def test_life_loss_ends_the_episode_of_the_agent_but_not_the_game():
    config = AtariConfig(life_loss_ends_episode=True)
    environment = AtariVectorEnvironment("breakout", config, seeds=[1])
    steps, episode = play_game(environment, FIRE)

    lasts = [index for index, step in enumerate(steps) if step.step_type[0] == LAST]
    assert len(lasts) == 5
    assert [steps[index].discount[0] for index in lasts] == [0.0] * 5
    for index in lasts[:-1]:
        first, second = steps[index + 1], steps[index + 2]
        assert (first.step_type[0], first.reward[0], first.discount[0]) == (FIRST, 0.0, 1.0)
        assert not first.observation[0, :3].any()
        assert not second.observation[0, :2].any()
        np.testing.assert_array_equal(second.observation[0, 2], first.observation[0, 3])
    # Every FIRST step but the game's own played a no-op: the agent did not take those.
    assert episode.length == len(steps) - 1 - 4


def test_evaluation_plays_on_after_a_life_loss_and_shows_what_training_does():
    config = AtariConfig(life_loss_ends_episode=True)
    (training, expected), (steps, episode) = (
        play_game(AtariVectorEnvironment("breakout", config, seeds=[1], evaluation=is_last), FIRE)
        for is_last in (False, True)
    )
    assert episode == expected
    assert [int(step.step_type[0]) for step in steps] == [FIRST, *[MID] * (len(steps) - 2), LAST]
    assert [float(step.discount[0]) for step in steps] == [1.0] * (len(steps) - 1) + [0.0]
    for step, of_training in zip(steps, training, strict=True):
        np.testing.assert_array_equal(step.observation, of_training.observation)


def test_rewards_are_clipped_for_the_agent_only():
    config = AtariConfig(max_frames=400)
    actions = make_actions(100, num_actions=9)
    environment = AtariVectorEnvironment("ms_pacman", config, seeds=[1])
    clipped = play(environment, actions)
    (episode,) = environment.finished_episodes()
    unclipped_environment = AtariVectorEnvironment(
        "ms_pacman", dataclasses.replace(config, clip_rewards=False), seeds=[1]
    )
    unclipped = play(unclipped_environment, actions)

    assert {float(step.reward[0]) for step in clipped} == {0.0, 1.0}
    assert max(float(step.reward[0]) for step in unclipped) >= 10.0
    assert episode.clipped_return == sum(float(step.reward[0]) for step in clipped)
    assert episode.episode_return == sum(float(step.reward[0]) for step in unclipped)
    (unclipped_episode,) = unclipped_environment.finished_episodes()
    assert unclipped_episode.clipped_return == unclipped_episode.episode_return


def test_games_start_with_zero_to_max_noops_frames():
    emulators = make_emulators("pong", AtariConfig(max_noops=2), num_envs=12, evaluation=False)
    # The seeds are fixed: these 12 draws from three values hold all of them.
    _, info = emulators.reset(seed=np.arange(1, 13))
    assert set(info["episode_frame_number"].tolist()) == {0, 1, 2}


def test_seeds_decide_the_trajectories():
    actions = make_actions(80, num_actions=6)

    def play_out(seeds: list[int]) -> np.ndarray:
        steps = play(AtariVectorEnvironment("pong", AtariConfig(), seeds), actions)
        return np.stack([step.observation for step in steps], axis=1)

    trajectories = play_out([1, 2, 3])
    np.testing.assert_array_equal(trajectories, play_out([1, 2, 3]))
    assert len({trajectory.tobytes() for trajectory in trajectories}) == 3


@pytest.mark.parametrize(("probability", "num_trajectories"), [(0.0, 1), (0.25, 4)])
def test_sticky_actions_are_the_only_chance_without_noops(probability, num_trajectories):
    config = AtariConfig(max_noops=0, sticky_action_probability=probability)
    steps = play(
        AtariVectorEnvironment("pong", config, seeds=[1, 2, 3, 4]), make_actions(80, num_actions=6)
    )
    trajectories = np.stack([step.observation for step in steps], axis=1)
    assert len({trajectory.tobytes() for trajectory in trajectories}) == num_trajectories


def test_a_step_before_the_first_reset_resets():
    environment = AtariVectorEnvironment("pong", AtariConfig(), seeds=[1])
    assert environment.step(np.array([0])).step_type.tolist() == [FIRST]
    assert environment.step(np.array([0])).step_type.tolist() == [MID]


@pytest.mark.parametrize("action", [-1, 6])
def test_unknown_actions_are_errors(action):
    environment = AtariVectorEnvironment("pong", AtariConfig(), seeds=[1, 2])
    environment.reset()
    with pytest.raises(ValueError, match=rf"actions must be in \[0, 6\), got \[0, {action}\]"):
        environment.step(np.array([0, action]))


@pytest.mark.parametrize(
    ("task", "rom"),
    [
        ("Pong", "pong"),
        ("MsPacman", "ms_pacman"),
        ("UpNDown", "up_n_down"),
        ("TicTacToe3D", "tic_tac_toe_3d"),
    ],
)
def test_names_of_games(task, rom):
    assert rom_name(task) == rom


def test_every_rom_name_is_its_own():
    names = set(roms.get_all_rom_ids()) - {"combat", "joust", "maze_craze", "warlords"}
    assert {rom_name(name) for name in names} == names


class ScriptedEmulator:
    """Replaces the native vector environment, for one environment.

    A step returns the next of the given rows, (reward, terminated, truncated, lives).
    """

    single_observation_space = spaces.Box(0, 255, (2, 1, 1), np.uint8)
    single_action_space = spaces.Discrete(3)

    def __init__(self, lives: int, rows: list[tuple[int, bool, bool, int]]):
        self._lives = lives
        self._rows = iter(rows)
        self.actions: list[int] = []

    def reset(self, seed: np.ndarray) -> tuple[np.ndarray, dict]:
        return self._observe(), {"lives": np.array([self._lives], np.int32)}

    def step(self, actions: np.ndarray) -> tuple:
        self.actions.extend(actions.tolist())
        reward, terminated, truncated, lives = next(self._rows)
        return (
            self._observe(),
            np.array([reward], np.int32),
            np.array([terminated]),
            np.array([truncated]),
            {"lives": np.array([lives], np.int32)},
        )

    def _observe(self) -> np.ndarray:
        return np.full((1, 2, 1, 1), 9, np.uint8)


# Per step: reward, end, truncation and lives of the emulator; step type, reward and discount of the
# agent; the action that the emulator gets for the agent's 2. Then the only game that is reported.
LOST_LIFE_AND_GAME_OVER = (
    [
        ((5, False, False, 2), (MID, 1.0, 1.0), 2),
        ((0, False, False, 1), (LAST, 0.0, 0.0), 2),  # A life is lost.
        ((7, False, False, 1), (FIRST, 0.0, 1.0), 0),  # The no-op of the FIRST step.
        # Qbert does this: no life is left, but the game is not over.
        ((-3, False, False, 0), (MID, -1.0, 1.0), 2),
        ((0, True, False, 0), (LAST, 0.0, 0.0), 2),
        ((0, False, False, 2), (FIRST, 0.0, 1.0), 0),  # A new game.
    ],
    Episode(0, 5.0 + 7.0 - 3.0, 1.0 - 1.0, 4),
)
LOST_LIVES_IN_AN_EVALUATION = (
    [
        ((5, False, False, 1), (MID, 1.0, 1.0), 2),  # A life is lost.
        ((7, False, False, 1), (MID, 1.0, 1.0), 0),  # The no-op.
        ((4, True, False, 0), (LAST, 1.0, 0.0), 2),
        ((0, False, False, 2), (FIRST, 0.0, 1.0), 0),  # A new game.
    ],
    Episode(0, 5.0 + 7.0 + 4.0, 1.0 + 1.0 + 1.0, 2),
)
GAME_OVER_IN_THE_NO_OP_OF_AN_EVALUATION = (
    [
        ((-3, False, False, 1), (MID, -1.0, 1.0), 2),  # A life is lost,
        ((4, True, False, 0), (LAST, 1.0, 0.0), 0),  # and the last one in the no-op that follows.
        ((0, False, False, 2), (FIRST, 0.0, 1.0), 0),
    ],
    Episode(0, -3.0 + 4.0, -1.0 + 1.0, 1),
)
LIFE_LOST_AT_THE_FRAME_LIMIT = (
    [
        ((1, False, True, 1), (LAST, 1.0, 0.0), 2),
        ((0, False, False, 2), (FIRST, 0.0, 1.0), 0),
    ],
    Episode(0, 1.0, 1.0, 1),
)
GAME_OVER_IN_A_FIRST_STEP = (
    [
        ((0, False, False, 1), (LAST, 0.0, 0.0), 2),  # A life is lost,
        ((4, True, False, 0), (FIRST, 0.0, 1.0), 0),  # and the other one in the no-op that follows.
        # It begins a new game, whose frames do not follow the old ones.
        ((0, False, False, 2), (FIRST, 0.0, 1.0), 0),
        ((0, False, False, 2), (MID, 0.0, 1.0), 2),
    ],
    Episode(0, 4.0, 0.0, 1),
)
LIVES_THAT_DO_NOT_COUNT = (
    [
        ((2, False, False, 1), (MID, 1.0, 1.0), 2),
        ((2, True, True, 0), (LAST, 1.0, 0.0), 2),
        ((0, False, False, 2), (FIRST, 0.0, 1.0), 0),
    ],
    Episode(0, 2.0 + 2.0, 1.0 + 1.0, 2),
)


@pytest.mark.parametrize(
    ("script", "evaluation", "life_loss_ends_episode"),
    [
        pytest.param(LOST_LIFE_AND_GAME_OVER, False, True, id="lost_life_and_game_over"),
        pytest.param(LOST_LIVES_IN_AN_EVALUATION, True, True, id="evaluation"),
        pytest.param(GAME_OVER_IN_THE_NO_OP_OF_AN_EVALUATION, True, True, id="evaluation_no_op"),
        pytest.param(LIFE_LOST_AT_THE_FRAME_LIMIT, False, True, id="frame_limit"),
        pytest.param(GAME_OVER_IN_A_FIRST_STEP, False, True, id="first_step"),
        pytest.param(LIVES_THAT_DO_NOT_COUNT, False, False, id="no_life_loss"),
    ],
)
def test_scripts_of_games_of_two_lives(script, evaluation, life_loss_ends_episode):
    steps, episode = script
    emulator = ScriptedEmulator(2, [row for row, _, _ in steps])
    config = AtariConfig(frame_stack=2, life_loss_ends_episode=life_loss_ends_episode)
    environment = AtariVectorEnvironment(
        "pong", config, seeds=[1], evaluation=evaluation, make_emulators=lambda *_: emulator
    )
    environment.reset()
    timesteps = [environment.step(np.array([2])) for _ in steps]
    seen = [tuple(float(array[0]) for array in timestep[:3]) for timestep in timesteps]
    assert seen == [expected for _, expected, _ in steps]
    assert environment.finished_episodes() == [episode]
    assert emulator.actions == [action for _, _, action in steps]
