"""Environments of installed packages in which agents can act: every id of gymnasium, PettingZoo.

Each environment is made and checked as before a run, and stepped with the policy that begins to
learn, for both kinds of agent: Ape-X DQN and Ape-X DPG with the settings for small vectors. It is
refused if this ends in a ValueError, which commands print as their one line, and broken if it ends
in anything else, or not at all within `--timeout` seconds. Ids which `gymnasium.make` itself cannot
make, reset and step here are counted apart: a library, a display or a file is missing.

The table has a line for each package, and below it every different refusal with the number of
environments; `--out` has a row for each of them. Packages that are not installed are named.

Example:
  python benchmarks/registry.py --packages minigrid popgym --steps 100
"""

import contextlib
import csv
import importlib
import multiprocessing
import os
import pathlib
import re
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from measuring import RESULTS, make_parser

import apex_agents
from apex_agents.checks import check_environment
from apex_agents.environments import EnvironmentConfig, EnvironmentSpec
from apex_agents.experiment import Experiment, make_experiment
from apex_agents.studies.results import format_table

AGENTS = {"Ape-X DQN": "apex_dqn_cartpole", "Ape-X DPG": "apex_dpg_pendulum"}
# Modules that register ids, and PettingZoo.
PACKAGES = (
    *("gymnasium", "ale_py", "minigrid", "highway_env", "gymnasium_robotics", "shimmy", "popgym"),
    *("minatar", "pettingzoo"),
)
ACTS, REFUSED, BROKEN, UNUSABLE = "acts", "refused", "broken", "gymnasium cannot"
COLUMNS = ("package", "environment", "agent", "outcome", "message")


class Trial(NamedTuple):
    """How one agent fared in one environment; see `COLUMNS`."""

    package: str
    environment: str
    agent: str
    outcome: str
    message: str = ""


class OnePlayer:
    """One player of an AEC game of PettingZoo as a gymnasium environment; others act at random."""

    def __new__(cls, game: str, seed: int) -> Any:
        """Make the environment of a module such as 'classic.tictactoe_v3'."""
        import gymnasium

        game_env = importlib.import_module(f"pettingzoo.{game}").env()
        game_env.reset(seed=seed)
        player = game_env.possible_agents[0]

        class Environment(gymnasium.Env):
            observation_space = game_env.observation_space(player)
            action_space = game_env.action_space(player)

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                game_env.reset(seed=seed)
                return self._play_others(), {}

            def step(self, action):
                game_env.step(action)
                observation = self._play_others()
                is_over = player not in game_env.agents or game_env.terminations[player]
                is_cut = not is_over and game_env.truncations[player]
                reward = game_env.rewards.get(player, 0.0)
                return observation, reward, bool(is_over), bool(is_cut), {}

            def close(self):
                game_env.close()

            def _play_others(self):
                while game_env.agents and game_env.agent_selection != player:
                    other = game_env.agent_selection
                    observation, _, is_over, is_cut, info = game_env.last()
                    mask = info.get("action_mask")
                    if isinstance(observation, dict):
                        mask = observation.get("action_mask", mask)
                    space = game_env.action_space(other)
                    game_env.step(None if is_over or is_cut else space.sample(mask))
                return game_env.observe(player)

        return Environment()


def list_environments(package: str) -> list[EnvironmentConfig]:
    """Return the environments of a package, whose ids this registers.

    Raises:
      ImportError: it is not installed.
    """
    import gymnasium

    module = importlib.import_module(package)
    if package == "pettingzoo":
        return list(_list_games(pathlib.Path(module.__path__[0])))
    if package == "minatar":
        importlib.import_module("minatar.gym").register_envs()
    return [
        EnvironmentConfig("gymnasium", name, kwargs=_required_kwargs(name))
        for name, spec in sorted(gymnasium.registry.items())
        if _module_of(spec.entry_point).partition(".")[0] == package
    ]


def _required_kwargs(name: str) -> dict[str, Any]:
    """Return the first settings of a task of bsuite, without which many cannot be made."""
    task = re.fullmatch(r"bsuite/(\w+)-v0", name)
    if task is None:
        return {}
    sweep = importlib.import_module("bsuite.sweep")
    return dict(sweep.SETTINGS.get(f"{task[1]}/0", {}))


def _module_of(entry_point: Any) -> str:
    if isinstance(entry_point, str):
        return entry_point.partition(":")[0]
    return getattr(entry_point, "func", entry_point).__module__


def _list_games(folder: pathlib.Path) -> Iterator[EnvironmentConfig]:
    for path in sorted(folder.glob("*/*_v[0-9]*.py")):
        game = f"{path.parent.name}.{path.stem}"
        yield EnvironmentConfig("function", f"{__name__}:OnePlayer", kwargs={"game": game})


def try_environment(package: str, config: EnvironmentConfig, num_steps: int) -> Iterator[Trial]:
    """Yield how each agent fares in an environment."""
    package, name = _describe(package, config)
    for agent, preset in AGENTS.items():
        settings = apex_agents.load_config(preset)
        settings.run.target_return = None  # It is one of another task.
        settings.environment = config
        try:
            experiment = make_experiment(settings)
            check_environment(experiment)
            _act(experiment, num_steps)
            yield Trial(package, name, agent, ACTS)
        except ValueError as error:
            yield Trial(package, name, agent, REFUSED, str(error))
        except Exception as error:  # The subject of this script.
            yield Trial(package, name, agent, BROKEN, f"{type(error).__name__}: {error}")


def _describe(package: str, config: EnvironmentConfig) -> tuple[str, str]:
    """Return the name of the table's line, and that of the environment."""
    name = config.kwargs.get("game", config.task)
    namespace = re.match(r"[^/]+/|[^.]+(?=\.)", name)
    return f"{package} {namespace[0]}" if namespace else package, name


def _why_unusable(config: EnvironmentConfig) -> str:
    """Return why gymnasium alone cannot make, reset and step an environment; '' if it can."""
    import gymnasium

    try:
        if config.suite == "function":
            environment = OnePlayer(**config.kwargs, seed=0)
        else:
            environment = gymnasium.make(config.task, disable_env_checker=True, **config.kwargs)
        with contextlib.closing(environment):
            environment.reset(seed=0)
            environment.step(environment.action_space.sample())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


_policies: dict[Any, Any] = {}


def _act(experiment: Experiment, num_steps: int) -> None:
    with contextlib.closing(
        experiment.make_vector_environment(1, 1, evaluation=False)
    ) as environment:
        policy = _make_policy(experiment, environment.spec)
        timestep = environment.reset()
        for _ in range(num_steps):
            timestep = environment.step(policy(timestep).action)
        if environment.num_failures:
            raise ValueError(f"it failed {environment.num_failures} times in {num_steps} steps")


def _make_policy(experiment: Experiment, spec: EnvironmentSpec) -> Any:
    """Make the policy for a spec, once: hundreds of ids have the same one."""
    key = (type(experiment.builder), repr(spec))
    if key not in _policies:
        _policies.clear()  # Policies for large images would fill the memory.
        _policies[key] = experiment.builder.make_policy(spec, range(1), 1, 0)
    return _policies[key]


def _serve(connection: Connection, package: str, num_steps: int) -> None:
    """Try the environments that arrive, in a process that a fault of one may end."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    list_environments(package)
    with contextlib.suppress(EOFError):
        while True:
            config = connection.recv()
            reason = _why_unusable(config)
            connection.send(reason)  # It may end the process, too.
            if not reason:
                connection.send(list(try_environment(package, config, num_steps)))


def try_package(package: str, num_steps: int, timeout: float) -> Iterator[Trial]:
    """Yield how the agents fare in all environments of a package."""
    worker: Worker | None = None
    for config in list_environments(package):
        worker = worker or start_worker(package, num_steps)
        worker.connection.send(config)
        group, name = _describe(package, config)
        outcome = UNUSABLE
        try:
            if reason := _receive(worker.connection, timeout):
                yield from (Trial(group, name, agent, UNUSABLE, reason) for agent in AGENTS)
                continue
            outcome = BROKEN
            yield from _receive(worker.connection, timeout)
        except (EOFError, OSError) as error:
            worker.process.kill()
            worker.process.join()
            message = str(error) or f"the process ended with {worker.process.exitcode}"
            yield from (Trial(group, name, agent, outcome, message) for agent in AGENTS)
            worker = None
    if worker:
        worker.connection.close()


class Worker(NamedTuple):
    """A process that tries environments, and the end of a pipe to it."""

    process: multiprocessing.process.BaseProcess
    connection: Connection


def start_worker(package: str, num_steps: int) -> Worker:
    """Start a process that tries the environments of a package."""
    connection, other = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(other, package, num_steps), daemon=True
    )
    process.start()
    other.close()
    return Worker(process, connection)


def _receive(connection: Connection, timeout: float) -> Any:
    if not connection.poll(timeout):
        raise TimeoutError(f"nothing after {timeout:g} seconds")
    return connection.recv()


def make_table(trials: Sequence[Trial]) -> str:
    """Return a Markdown table with a line for each package, which counts environments."""
    header = ["package", "ids", *AGENTS, "neither, refused", BROKEN, UNUSABLE]
    rows = [header]
    for package in dict.fromkeys(trial.package for trial in trials):
        outcomes: dict[str, dict[str, str]] = {}
        for trial in trials:
            if trial.package == package:
                outcomes.setdefault(trial.environment, {})[trial.agent] = trial.outcome
        each = [set(of_agents.values()) for of_agents in outcomes.values()]
        rows.append(
            [
                *(package, str(len(outcomes))),
                *(str(sum(found[name] == ACTS for found in outcomes.values())) for name in AGENTS),
                str(sum(found == {REFUSED} for found in each)),
                str(sum(BROKEN in found for found in each)),
                str(sum(UNUSABLE in found for found in each)),
            ]
        )
    return format_table(rows)


def list_messages(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield the different messages of a package, numbers and names left out, with an example."""
    groups: dict[tuple[str, str, str, str], list[Trial]] = {}
    for trial in trials:
        text = re.sub(r"'[^']*'|[-+.,e\d]*\d|\[.*\]", "#", trial.message)
        groups.setdefault((trial.package, trial.agent, trial.outcome, text), []).append(trial)
    for (package, agent, outcome, _), found in groups.items():
        if outcome != ACTS:
            message = " ".join(found[0].message.split())
            yield f"{package}, {agent}, {outcome}, {len(found)}: {found[0].environment}: {message}"


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--packages", nargs="+", default=PACKAGES, choices=PACKAGES)
    parser.add_argument("--steps", type=int, default=100, help="steps in each environment")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for an environment")
    parser.set_defaults(out=str(RESULTS / "registry.csv"))
    arguments = parser.parse_args()
    trials: list[Trial] = []
    path = pathlib.Path(arguments.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for package in arguments.packages:
            try:
                for trial in try_package(package, arguments.steps, arguments.timeout):
                    trials.append(trial)
                    writer.writerow(trial)
                    file.flush()
            except ImportError as error:
                print(f"{package} is left out: {error}", flush=True)
    print(make_table(trials), *list_messages(trials), sep="\n")


if __name__ == "__main__":
    main()
