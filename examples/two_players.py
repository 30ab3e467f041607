"""A board game of PettingZoo, which has to be installed, against a player who draws moves.

apex-dqn --config=apex_dqn_cartpole --config.agent.n_step=1 --config.environment.suite=function \
    --config.environment.task=two_players:TwoPlayers --config.environment.kwargs.game=tictactoe_v3
"""

import importlib

import gymnasium


class TwoPlayers(gymnasium.Env):
    """The game for one of its players, drawn anew each time: a win gives 1, a loss -1."""

    def __init__(self, game: str):
        self._game = importlib.import_module(f"pettingzoo.classic.{game}").env()
        player = self._game.possible_agents[0]
        self.observation_space = self._game.observation_space(player)
        self.action_space = self._game.action_space(player)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._game.reset()
        self._player = self.np_random.choice(self._game.possible_agents)
        return self._play()[0], {}

    def step(self, action):
        self._game.step(int(action))
        observation, reward, is_over = self._play()
        return observation, reward, is_over, False, {"is_success": reward > 0}

    def _play(self):
        """Let the other one move until it is the agent's turn, or the game is over."""
        for player in self._game.agent_iter():
            observation, reward, is_over, _, _ = self._game.last()
            if player == self._player:
                return observation, reward, is_over
            legal = observation["action_mask"].nonzero()[0]
            self._game.step(None if is_over else int(self.np_random.choice(legal)))
