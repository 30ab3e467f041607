"""Runs a program under Launchpad's test launcher and writes down what can be seen of it.

Arguments: the agent, 'dqn' or 'dpg', and a work directory. It gets the run's files, and

  seen.json    the program's groups, the shapes of the published parameters and some items
  calls.jsonl  a line for each call that a node makes to the builder or for environments
"""

import functools
import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp
import reverb
from absl.testing import absltest

from apex_agents import ApexDPGBuilder, ApexDPGConfig, ApexDQNBuilder, ApexDQNConfig
from apex_agents.builder import Builder
from apex_agents.config import EvaluationConfig, RunConfig
from apex_agents.environments import EnvironmentConfig, VectorEnvironment, make_vector_environment
from apex_agents.experiment import Experiment
from apex_agents.program import make_program
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.messages import ParameterSource

REPLAY = ReplayConfig(max_size=1000, min_size=20, insert_batch=10)
DQN = ApexDQNConfig(
    torso="mlp",
    mlp_hidden_sizes=(16,),
    stream_hidden_size=16,
    frame_stack=0,
    batch_size=8,
    replay=REPLAY,
)
DPG = ApexDPGConfig(
    policy_hidden_sizes=(8, 4), critic_hidden_sizes=(16, 2), batch_size=8, replay=REPLAY
)
# Any evaluation of Catch reaches -1 and any of the point mass -10, and evaluations need a learner
# step.
RUN = RunConfig(
    num_actors=2,
    num_envs_per_actor=2,
    num_replays=2,
    target_return=-10.0,
    evaluation=EvaluationConfig(num_episodes=2, min_period_seconds=0.1),
)

Record = Callable[..., None]


class RecordingBuilder:
    """A builder that writes down which policies and adders it is asked for."""

    def __init__(self, builder: Any, record: Record):
        self._builder = builder
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def make_policy(self, spec: Any, env_indices: Sequence[int], num_envs: int, seed: int) -> Any:
        indices = [int(index) for index in env_indices]
        self._record("make_policy", env_indices=indices, num_envs=num_envs, seed=seed)
        return self._builder.make_policy(spec, env_indices, num_envs, seed)

    def make_adders(
        self,
        client: reverb.Client,
        spec: Any,
        env_indices: Sequence[int] = (0,),
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        indices = [int(index) for index in env_indices]
        self._record("make_adders", address=client.server_address, env_indices=indices)
        return self._builder.make_adders(client, spec, env_indices, *args, **kwargs)

    def make_evaluation_policy(self, spec: Any, num_envs: int, seed: int) -> Any:
        self._record("make_evaluation_policy", num_envs=num_envs, seed=seed)
        return self._builder.make_evaluation_policy(spec, num_envs, seed)


class ProgramTest(absltest.TestCase):
    def test_run(self) -> None:
        def record(call: str, **arguments: Any) -> None:
            with (workdir / "calls.jsonl").open("a") as file:
                file.write(json.dumps({"call": call, **arguments}) + "\n")

        def make_environment(
            num_envs: int, seed: int, evaluation: bool = False, **settings: Any
        ) -> VectorEnvironment:
            record("make_environment", num_envs=num_envs, seed=seed, evaluation=evaluation)
            return make_task(num_envs, seed, evaluation=evaluation, **settings)

        if agent == "dqn":
            builder: Builder = ApexDQNBuilder(DQN)
            task, names = "catch", ["network"]
        else:
            builder = ApexDPGBuilder(DPG)
            task, names = "point_mass", ["policy", "critic"]
        make_task = functools.partial(make_vector_environment, EnvironmentConfig("toy", task))
        experiment = Experiment(
            RecordingBuilder(builder, record), make_environment, RUN, str(workdir)
        )
        program = make_program(experiment)
        manager = lp.launch(program, launch_type="test_mt", test_case=self)

        replay, _ = program.groups["replay"]
        client = reverb.Client(replay.reverb_address.resolve())
        published = ParameterSource(client).get_variables(names)
        samples = client.sample(
            "transitions", num_samples=20, emit_timesteps=False, unpack_as_table_signature=True
        )
        items = [{name: v.ravel().tolist() for name, v in s.data.items()} for s in samples]
        manager.wait()
        seen = {
            "groups": {name: len(nodes) for name, nodes in program.groups.items()},
            "parameter_shapes": {
                name: [list(array.shape) for array in arrays]
                for name, arrays in zip(names, published, strict=True)
            },
            "items": items,
        }
        (workdir / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    workdir = pathlib.Path(sys.argv.pop())
    agent = sys.argv.pop()
    for folder in ("logs", "checkpoints"):
        (workdir / folder).mkdir(parents=True)
    absltest.main()
