r"""Trains with several seeds, and on several tasks, and compares the results.

The folder of the sweep holds <task>/seed_<i>/, the work directories of the runs (output.log is
what a run printed), and in the end results.md, results.csv, returns.png and returns.svg.

A run that fails does not stop the others; the exit code is 1 then. Given again with the same
--workdir, after Ctrl-C for example, the command resumes the runs that have not reached their end.

Examples:
  python launch/sweep.py --config=configs/apex_dqn_cartpole.py --seeds=5
  python launch/sweep.py --config=configs/apex_dqn_atari_single_host.py --games=pong,breakout \
      --seeds=3 --workdir=sweeps/two_games --config.run.max_actor_steps=1000000
"""

from apex_agents.command_line import sweep

if __name__ == "__main__":
    sweep.main()
