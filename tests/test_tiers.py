"""Tests of the tiers: they follow from the code of a test, which starts nothing beyond its own."""

import ast
import os
import subprocess

import pytest
import reverb
import tiers

from apex_agents.local import run_local


def start_nothing():
    return reverb.Table, os.getpid()


def start_a_server():
    def start():
        return reverb.Server([])

    return start


def start_a_program():
    return subprocess.run(["true"])


class Program:
    @property
    def exit_code(self):
        return start_a_program().returncode


def start_by_default(start=start_a_program):
    return start()


def learn():
    return run_local


def start_from_a_module():
    from apex_agents.nodes import process

    return process.LocalNodeProcess


# Names, because a function that is a parameter belongs to the code of the test.
@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("start_nothing", set()),
        ("start_a_server", {"reverb"}),
        ("start_a_program", {"process"}),
        ("Program", {"process"}),
        ("start_by_default", {"process"}),
        ("start_from_a_module", {"process"}),
        ("learn", {"reverb"}),
    ],
)
def test_tiers_follow_from_the_code(name, needed):
    assert tiers.needed_tiers([globals()[name]]) == needed


@pytest.fixture
def server():
    start_a_server()


def test_the_code_of_a_fixture_counts(server, request):
    assert tiers.tier_of(request.node) == "reverb"


@pytest.mark.parametrize("start", [start_a_server])
def test_the_code_of_a_parameter_counts(start, request):
    assert tiers.tier_of(request.node) == "reverb"


def test_every_test_has_one_tier(request):
    assert {mark.name for mark in request.node.iter_markers()} == {"unit"}


def test_a_unit_test_starts_no_server():
    make_server = vars(reverb)["Server"]
    with pytest.raises(pytest.fail.Exception, match="tier `unit`"):
        make_server([])


@pytest.mark.parametrize("start", ["run", "call", "check_output"])
def test_a_unit_test_starts_no_process(start):
    library = __import__("subprocess")
    with pytest.raises(pytest.fail.Exception, match="tier `unit`"):
        getattr(library, start)(["true"])


@pytest.mark.parametrize("name", [*tiers.ESSENTIAL, *tiers.SLOW])
def test_listed_tests_exist(name):
    file, _, function = name.partition("::")
    tree = ast.parse((tiers.ROOT / file).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert not function or function in functions
