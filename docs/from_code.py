"""What the pages take from the code: fields of configs, flags of commands, docstrings."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import sys
from collections.abc import Iterator
from typing import Any

from absl import flags
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from apex_agents.command_line.field_help import read_meanings
from apex_agents.presets import CONFIGS, preset_names


class ConfigFields(SphinxDirective):
    """Describe the fields of a dataclass: type, default, meaning, allowed values.

    Arguments: the path of the fields, such as `run`, and the class, such as
    `apex_agents.RunConfig`. Configs among its fields are left out.
    """

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return a description of each field."""
        prefix, path = self.arguments
        module, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(module), name)
        lines = itertools.chain.from_iterable(
            self._describe(f"{prefix}.{field.name}", field, default, meaning)
            for field, default, meaning in _read_fields(kind)
        )
        return self.parse_text_to_nodes("\n".join(lines))

    def _describe(
        self, path: str, field: dataclasses.Field, default: Any, meaning: str
    ) -> Iterator[str]:
        # Of two agents with a field of the same name, the first one is in the index.
        described = self.env.temp_data.setdefault("described_fields", set())
        declared = field.type.__name__ if isinstance(field.type, type) else field.type
        yield f"```{{confval}} {path}"
        if path in described:
            yield ":no-index:"
        described.add(path)
        allowed = [f", {allowed}" for _, allowed in field.metadata.values()]
        yield from ("", meaning, "")
        yield f"`{declared}`{''.join(allowed)}; default `{default!r}`."
        yield "```"


class CommandHelp(SphinxDirective):
    """Show what `--help` says about a command: what it does, and its own flags.

    Arguments: name of the command, and of its module in `apex_agents.command_line`.
    """

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return the docstring of the module and a description of each flag."""
        command, module = self.arguments
        text, found = _read_command(f"apex_agents.command_line.{module}")
        lines = [*_to_markdown(text), f"```{{program}} {command}", "```"]
        for flag in found:
            names = f"--{flag.name}, --no{flag.name}" if flag.boolean else f"--{flag.name}"
            lines += [f"```{{option}} {names}", flag.help]
            lines += [] if flag.default is None else [f"Default: `{flag.default}`."]
            lines += ["```"]
        return self.parse_text_to_nodes("\n".join(lines))


class Presets(SphinxDirective):
    """List the settings that come with the package: their names and what they train."""

    def run(self) -> list[nodes.Node]:
        """Return a table of names and first sentences."""
        rows = []
        for name in preset_names():
            text = ast.get_docstring(ast.parse((CONFIGS / f"{name}.py").read_text())) or ""
            sentence = text.partition("\n\n")[0].removesuffix(".").replace("\n", " ")
            rows.append(f"| `{name}` | {sentence} |")
        return self.parse_text_to_nodes("\n".join(["| `--config` | trains |", "|---|---|", *rows]))


def _read_fields(kind: type) -> Iterator[tuple[dataclasses.Field, Any, str]]:
    """Yield the fields of a dataclass that are no configs, with their defaults and meanings."""
    config, meanings = kind(), read_meanings(kind)
    for field in dataclasses.fields(config):
        default = getattr(config, field.name)
        if not dataclasses.is_dataclass(default):
            yield field, default, meanings[field.name]


def _read_command(name: str) -> tuple[str, list[flags.Flag]]:
    """Return the docstring and the flags of a command's module, with those that it shares.

    The flags are removed from the global ones, since other commands have flags of the same names,
    and the modules that define them are forgotten: the next command that shares them defines them
    again.
    """
    module = importlib.import_module(name)
    found = list(flags.FLAGS.get_key_flags_for_module(name))
    definers = {str(flags.FLAGS.find_module_defining_flag(flag.name)) for flag in found}
    for flag in found:
        delattr(flags.FLAGS, flag.name)
    for definer in definers:
        package, _, submodule = definer.rpartition(".")
        del sys.modules[definer]
        delattr(sys.modules[package], submodule)
    return inspect.cleandoc(module.__doc__ or ""), found


def _to_markdown(text: str) -> Iterator[str]:
    """Yield the lines of a docstring; those that are indented become blocks of code."""
    groups = itertools.groupby(text.splitlines(), lambda line: line.startswith("  "))
    for is_indented, lines in groups:
        yield from (
            ("", "```text", *(line[2:] for line in lines), "```", "") if is_indented else lines
        )


def make_equations_literal(*args: Any) -> None:
    """Turn equations, which are indented in the text of a docstring, into literal blocks.

    What belongs to `Args:` and the like is indented, too, but no empty line precedes it.
    """
    lines: list[str] = args[-1]
    for index in range(len(lines) - 2, 0, -1):
        before, line, after = lines[index - 1 : index + 2]
        if not line and after.startswith("  ") and before and not before.startswith(" "):
            lines[index : index + 1] = ["", "::", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what this module has for Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("config-fields", ConfigFields)
    app.add_directive("command-help", CommandHelp)
    app.add_directive("presets", Presets)
    # Before Napoleon, which reads the sections of docstrings.
    app.connect("autodoc-process-docstring", make_equations_literal, priority=400)
    return {"parallel_read_safe": False}
