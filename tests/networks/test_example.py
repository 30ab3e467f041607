"""The example of a network of one's own is a config whose agent can learn in its environment."""

import importlib.util
import pathlib

from apex_agents.environments import make_vector_environment
from apex_agents.registry import make_builder

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "own_network.py"


def test_example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    spec = importlib.util.spec_from_file_location("config_of_a_user", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config()
    config.validate()
    environment = make_vector_environment(config.environment, num_envs=2, seed=0)
    builder = make_builder(config.agent)
    builder.check_environment(environment.spec)
    policy = builder.make_policy(environment.spec, [0, 1], num_envs=2, seed=0)
    assert policy(environment.reset().observation).action.shape == (2,)
    names = {variable.name for variable in policy.variables["network"]}
    assert {"torso/mlp/linear_0/w:0", "torso/mlp/linear_1/w:0", "head/hidden/w:0"} <= names
    assert EXAMPLE.read_text().count("\n") < 40
