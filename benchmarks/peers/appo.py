"""Trains sample-factory's APPO on a game of Atari for a stated time.

Hyperparameters are those of its own example for Atari, but with one worker that has eight
environments, since a run has one core. The learning rate falls over ten million frames, of which
such a run sees few. The environments are those of that example: like those of `atari.py`, without
sticky actions, and a life is an episode.

A line of JSON is printed periodically, and one in the end: the mean return of the training games
that ended since the line before, with their real score. The agent acts in them as its policy says,
as A2C and PPO do in evaluations.

Example:
  .venv-appo/bin/python benchmarks/peers/appo.py breakout --limit 1800
"""

import argparse
import json
import signal
import statistics
import tempfile

from process_clock import seconds_of_process
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.misc import EPISODIC, ExperimentStatus
from sample_factory.train import make_runner
from sf_examples.atari.train_atari import parse_atari_args, register_atari_components


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("game", help="as breakout or space_invaders")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds")
    parser.add_argument("--period", type=float, default=300.0, help="seconds between lines")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Its workers end with it.
    register_atari_components()
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "algo": "APPO",
            "env": f"atari_{arguments.game.replace('_', '')}",
            "device": "cpu",
            "num_workers": 1,
            "num_envs_per_worker": 8,
            "seed": arguments.seed,
            "train_dir": folder,
        }
        settings = parse_atari_args([f"--{name}={value}" for name, value in options.items()])
        _, runner = make_runner(settings)
        returns = Returns(arguments.limit, arguments.period)
        runner.register_observer(returns)
        runner.register_episodic_stats_handler(returns.on_game)
        status = runner.init()
        if status == ExperimentStatus.SUCCESS:
            status = runner.run()
    if status != ExperimentStatus.SUCCESS:
        raise SystemExit(f"sample-factory's run ended with status {status}.")


class Returns(AlgoObserver):
    """Prints the mean return of the training games that ended, and ends the run at its limit."""

    def __init__(self, limit: float, period: float):
        """Store when lines are printed.

        Args:
          limit: wall time of the run, in seconds.
          period: seconds between lines; without a game that ended there is none.
        """
        self._limit, self._period, self._due = limit, period, period
        self._returns: list[float] = []

    def on_game(self, runner: Runner, message: dict, policy_id: int) -> None:
        """Keep the return of a training episode, if a whole game ended with it."""
        result = message[EPISODIC].get("RecordEpisodeStatistics_reward")
        if result is not None:
            self._returns.append(float(result))

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Print a line if one is due; `train_for_seconds` of sample-factory 2.1.1 ends no run."""
        seconds = seconds_of_process()
        if seconds < min(self._due, self._limit):
            return
        if self._returns:
            steps = sum(runner.env_steps.values()) // runner.cfg.env_frameskip
            updates = round(steps * runner.cfg.num_epochs / runner.cfg.batch_size)
            row = {"mean_return": statistics.fmean(self._returns), "seconds": seconds}
            row |= {"agent_steps": steps, "learner_steps": updates}
            print(json.dumps(row), flush=True)
        self._due = seconds + self._period
        self._returns.clear()
        if seconds >= self._limit:
            runner.cfg.train_for_env_steps = 0


if __name__ == "__main__":
    main()
