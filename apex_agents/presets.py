"""Settings that come with the package, by the names that --config takes."""

import pathlib

from apex_agents.config import ExperimentConfig
from apex_agents.user_code import execute_config_file
from apex_agents.validation import unknown_name

# Within the package where it is installed, beside it in a checkout.
_PACKAGE = pathlib.Path(__file__).resolve().parent
CONFIGS = next(
    folder for folder in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if folder.is_dir()
)


def preset_names() -> list[str]:
    """Return the names of all settings that come with the package."""
    return sorted(file.stem for file in CONFIGS.glob("*.py"))


def load_config(name: str) -> ExperimentConfig:
    """Return settings that come with the package, to start from.

    Args:
      name: their name, such as 'apex_dqn_cartpole'; `configs/` has a file for each.

    Returns:
      A new config, which the caller may change.

    Raises:
      ValueError: there are no settings of that name, or they need a package that is missing.
    """
    known = preset_names()
    if name not in known:
        raise unknown_name("config", name, known)
    return execute_config_file(CONFIGS / f"{name}.py", is_recorded=False)
