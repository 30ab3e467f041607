r"""Trains Ape-X DPG.

Examples:
  python launch/apex_dpg.py --lp_launch_type=local_mp
  python launch/apex_dpg.py --lp_launch_type=local_mp \
      --config=configs/apex_dpg_control.py --config.environment.task=humanoid:walk
"""

import pathlib

from apex_agents.nodes.fork_server import open_server

if __name__ == "__main__":
    open_server(("apex_agents.program", "apex_agents.dpg.builder"))  # It imports for all nodes.

import command

from apex_agents.dpg.builder import ApexDPGBuilder

_CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "configs"

if __name__ == "__main__":
    command.run(ApexDPGBuilder, str(_CONFIGS / "apex_dpg_pendulum.py"))
