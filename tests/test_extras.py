"""Tests of the message about an extra that is not installed."""

import importlib.machinery
import sys

import pytest

from apex_agents.extras import missing_extra


@pytest.mark.parametrize(
    ("spec", "command"),
    [
        ("pip", f"{sys.executable} -m pip install"),
        (None, f"uv pip install --python {sys.executable}"),
    ],
)
def test_the_command_works_in_this_environment(spec, command, monkeypatch):
    monkeypatch.setattr(importlib.machinery.PathFinder, "find_spec", lambda name: spec)
    message = str(missing_extra("wandb", "--wandb"))
    assert message.startswith("--wandb needs the extra 'wandb'")
    assert message.endswith(f"{command} 'apex_agents[wandb]'")
