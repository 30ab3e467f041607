r"""Exports the policy of a run, to act with it without this package.

  python launch/export.py RUN [FLAGS]

Writes into a folder:
  saved_model/  for TensorFlow: its signature maps `observation` to `action`, as the environment
                takes it, and to `q_values` or `logits`, for any number of observations at once
  policy.onnx   the same for onnxruntime and other runtimes; needs the extra `export`
  policy.json   shapes and dtypes of observations and outputs, bounds of actions, the environment

Both are compared with the network on observations of the run's environment. The exit code is 1 if
one of them differs by more than 1e-4 (or, where outputs exceed 100, by more than 1e-6 of them).

--agent writes the agent itself into a folder instead, to hand it on: parameters, settings and a
model card, README.md. apex-evaluate, apex-play and this command take such a folder as they take
that of a run.

Examples:
  python launch/export.py runs/apex_dqn_cartpole-20260101-120000
  python launch/export.py runs/pong --checkpoint=last --output=pong_policy
  python launch/export.py runs/pong --agent=handed_on/pong --float16 --license=Apache-2.0
"""

import json
import pathlib
from collections.abc import Sequence

import tensorflow as tf
from absl import flags, logging
from rich import filesize

from apex_agents.agent_folder import write_agent_folder
from apex_agents.command_line.arguments import (
    define_checkpoint,
    define_workdir,
    fail,
    locate,
    mistakes_end_command,
    take_run,
    warn,
)
from apex_agents.exit_codes import EXIT_FAILURE
from apex_agents.export import (
    ExportError,
    describe,
    export_onnx,
    export_saved_model,
    record_observations,
)
from apex_agents.extras import missing_extra
from apex_agents.loading import TrainedPolicy, load
from apex_agents.runs.checkpoints import is_of_run
from apex_agents.runs.files import replace_file
from apex_agents.runs.workdir import check_path
from apex_agents.user_code import naming_errors

_WORKDIR = define_workdir()
_CHECKPOINT = define_checkpoint()
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder for the export; by default <RUN>/exports/<checkpoint>."
)
_AGENT = flags.DEFINE_string("agent", None, "Folder for the agent, in place of an export.")
_FLOAT16 = flags.DEFINE_bool(
    "float16", False, "Whether --agent rounds parameters to float16, for half the size."
)
_LICENSE = flags.DEFINE_string(
    "license", None, "License of the --agent, for its card, such as Apache-2.0."
)


@mistakes_end_command((ValueError, OSError))
def main(arguments: Sequence[str]) -> None:
    """Export the policy, or the agent, of the run that the arguments name."""
    # TensorFlow reports every file that it writes.
    logging.set_verbosity(logging.WARNING)
    tf.get_logger().setLevel("WARNING")
    folder = take_run(arguments, _WORKDIR.value)
    if _AGENT.value is not None:
        return _write_agent(folder)
    if _FLOAT16.value or _LICENSE.value is not None:
        name = "float16" if _FLOAT16.value else "license"
        raise ValueError(f"--{name} is for --agent.")
    policy = load(folder, _CHECKPOINT.value)
    # Parameters of a different run have a separate folder.
    name = policy.path.stem if is_of_run(policy.path, folder) else f"other-{policy.path.stem}"
    output = locate(_OUTPUT.value) if _OUTPUT.value else folder / "exports" / name
    check_path(output)
    output.mkdir(parents=True, exist_ok=True)
    try:
        _export(policy, output)
    except ValueError as error:  # Of the environment, too, while it is played.
        fail(error, EXIT_FAILURE)


def _write_agent(run: pathlib.Path) -> None:
    if _OUTPUT.value is not None:
        raise ValueError("--output and --agent exclude each other.")
    if not _AGENT.value:
        raise ValueError("--agent is empty; it has to be a folder.")
    folder = locate(_AGENT.value)
    try:
        parameters, difference = write_agent_folder(
            run, folder, _CHECKPOINT.value, _FLOAT16.value, _LICENSE.value
        )
    except ExportError as error:
        fail(error, EXIT_FAILURE)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    _show("parameters", f"{parameters.path.stem}, learner step {parameters.learner_steps:,}")
    _show("agent", f"{folder}, {filesize.decimal(size)}")
    if difference is not None:
        _show("float16", f"greatest difference {difference:.1e}")


def _export(policy: TrainedPolicy, output: pathlib.Path) -> None:
    with naming_errors(f"{policy.config.environment.task} fails"):
        observations = record_observations(policy)
    description, model = output / "policy.json", output / "policy.onnx"
    for path in (description, model):  # Left by an earlier export, perhaps of a different policy.
        path.unlink(missing_ok=True)
    _show("parameters", f"{policy.path.stem}, learner step {policy.learner_steps:,}")
    _show("compared for", f"{len(observations)} observations")
    saved_model = output / "saved_model"
    difference = export_saved_model(policy, saved_model, observations)
    _show("saved_model", f"{saved_model}, greatest difference {difference:.1e}")
    # It is of the SavedModel, too, which networks have that ONNX cannot hold.
    replace_file(description, json.dumps(describe(policy), indent=2, default=str).encode())
    try:
        difference = export_onnx(policy, model, observations)
        _show("onnx", f"{model}, greatest difference {difference:.1e}")
    except ImportError as error:
        warn(f"there is no ONNX file ({error}): {missing_extra('export', 'ONNX')}")
    _show("description", description)


def _show(name: str, value: object) -> None:
    print(f"{name:>12}: {value}")
