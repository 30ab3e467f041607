"""Flags that several commands have.

Each is defined for the command that calls the function, as if it stood there.
"""

from absl import flags

flags.disclaim_key_flags()


def define_workdir() -> flags.FlagHolder[str | None]:
    """Define --workdir, for `errors.take_run`."""
    return flags.DEFINE_string("workdir", None, "Folder of the run, if RUN is not given.")


def define_wandb() -> flags.FlagHolder[str | None]:
    """Define --wandb, for `training.train`."""
    return flags.DEFINE_string(
        "wandb",
        None,
        "Weights & Biases project that the metrics are sent to; with WANDB_MODE=offline in the "
        "environment they stay in the run's folder. Needs the package wandb.",
    )


def define_checkpoint() -> flags.FlagHolder[str]:
    """Define --checkpoint, for `evaluation.parameters.find_parameters`."""
    return flags.DEFINE_string(
        "checkpoint",
        "best",
        "Parameters: 'best', those of the best evaluation; 'last', the newest; the name of a "
        "checkpoint of the learner, such as learner-000000001234; or the path of a checkpoint or "
        "of an .npz file.",
    )
