"""The flags with which a command is told a run and its parameters.

Each is defined for the command that calls the function, as if it stood there.
"""

from absl import flags

flags.disclaim_key_flags()


def define_workdir() -> flags.FlagHolder[str | None]:
    """Define --workdir, for `errors.take_run`."""
    return flags.DEFINE_string("workdir", None, "Folder of the run, if RUN is not given.")


def define_checkpoint() -> flags.FlagHolder[str]:
    """Define --checkpoint, for `evaluation.parameters.find_parameters`."""
    return flags.DEFINE_string(
        "checkpoint",
        "best",
        "Parameters: 'best', those of the best evaluation; 'last', the newest; the name of a "
        "checkpoint of the learner, such as learner-000000001234; or the path of a checkpoint or "
        "of an .npz file.",
    )
