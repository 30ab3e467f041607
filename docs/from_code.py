"""Writes what the pages take from the code: fields of configs, flags of commands, docstrings.

A page has it between two comments, such as `<!-- fields run apex_agents.RunConfig -->` and
`<!-- end -->`. `make pages` writes all of it anew; `--check` only names the pages that are not what
the code says.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import itertools
import pathlib
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import flags

from apex_agents.command_line.fields import describe_types, read_meanings
from apex_agents.presets import CONFIGS, execute_file, preset_names
from apex_agents.studies.results import compare, from_csv, summarise
from apex_agents.studies.study import Study

DOCS = pathlib.Path(__file__).resolve().parent
_BLOCK = re.compile(r"<!-- (\w+)(.*?) -->\n.*?<!-- end -->", re.DOTALL)
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):\n", re.MULTILINE)
_ENTRY = re.compile(r"^([\w*., ]+): (.*(?:\n .*)*)", re.MULTILINE)


def main() -> int:
    """Write or check all pages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args().check
    paths = [*sorted(DOCS.rglob("*.md")), *sorted(DOCS.parent.glob("results/*.md"))]
    pages = {path: path.read_text() for path in paths}
    written = {path: write_blocks(text) for path, text in pages.items()}
    stale = [path for path in pages if written[path] != pages[path]]
    for path in stale:
        print(path.relative_to(DOCS.parent))
        if not is_check:
            path.write_text(written[path])
    if stale and is_check:
        print("These pages are not what the code says; `make pages` writes them anew.")
    return int(bool(stale) and is_check)


def write_blocks(page: str) -> str:
    """Return a page with the content of all its blocks written anew."""

    def write(block: re.Match[str]) -> str:
        kind, arguments = block[1], block[2].split()
        text = "\n".join(["", *_WRITERS[kind](*arguments), "", "<!-- end -->"])
        return f"<!-- {kind}{block[2]} -->\n" + _collapse(text)

    return _BLOCK.sub(write, page)


def write_fields(prefix: str, path: str) -> Iterator[str]:
    """Yield the table of the fields of a dataclass, but for configs among them.

    Args:
      prefix: path of the fields, such as `run`.
      path: path of the class, such as `apex_agents.RunConfig`.
    """
    kind = _find(path)
    config, meanings, types = kind(), read_meanings(kind), describe_types(kind)
    yield from _head("field", "type", "default", "meaning")
    for field in dataclasses.fields(config):
        default = getattr(config, field.name)
        if not dataclasses.is_dataclass(default):
            name, meaning = f"`{prefix}.{field.name}`", meanings[field.name]
            yield _row(name, f"`{types[field.name]}`", f"`{default!r}`", _escape(meaning))


def write_command(module: str) -> Iterator[str]:
    """Yield what `--help` says about a command: its docstring, and a table of its own flags.

    Args:
      module: name of its module in `apex_agents.command_line`.
    """
    text, found = _read_command(f"apex_agents.command_line.{module}")
    yield from _to_blocks(text)
    yield from ("", *_head("flag", "default", "meaning"))
    for flag in found:
        names = f"`--{flag.name}`, `--no{flag.name}`" if flag.boolean else f"`--{flag.name}`"
        default = "" if flag.default is None else f"`{flag.default}`"
        yield _row(names, default, _escape(flag.help))


def write_presets() -> Iterator[str]:
    """Yield the table of the settings that come with the package, and what they train."""
    yield from _head("`--config`", "trains")
    for name in preset_names():
        text = ast.get_docstring(ast.parse((CONFIGS / f"{name}.py").read_text())) or ""
        yield _row(f"`{name}`", text.partition("\n\n")[0].removesuffix("."))


def write_study(path: str, *csv_files: str) -> Iterator[str]:
    """Yield the table of a study.

    Args:
      path: file of the study, from the checkout.
      *csv_files: files of its evaluations.
    """
    study = execute_file(DOCS.parent / path, Study, "get_study")
    points = [point for file in csv_files for point in from_csv((DOCS.parent / file).read_text())]
    yield compare(summarise(study, points)).rstrip()


def write_file(path: str, part: str = ":") -> Iterator[str]:
    """Yield the code of a file of the checkout, or a part of it.

    Args:
      path: the file, from the checkout.
      part: `FIRST:LAST`, names of the definition that the part begins with and of the one before
        which it ends; without a name it begins or ends where the file does.
    """
    text = (DOCS.parent / path).read_text()
    first, last = part.split(":")
    start = _find_definition(text, first) if first else 0
    end = _find_definition(text, last) if last else None
    yield from ("```python", text[start:end].rstrip(), "```")


def _find_definition(text: str, name: str) -> int:
    return text.index(f"\n{'class' if name[0].isupper() else 'def'} {name}") + 1


def write_object(path: str) -> Iterator[str]:
    """Yield the documentation of a class or a function, such as `apex_agents.train`."""
    node, lines = _parse(textwrap.dedent(inspect.getsource(_find(path))))
    yield from _describe(node, lines, 3, path)


def write_module(name: str) -> Iterator[str]:
    """Yield the documentation of a module and of what is public in it."""
    text = (DOCS.parent / f"{name.replace('.', '/')}.py").read_text()
    module = ast.parse(text)
    yield from (f"### `{name}`", "", *_to_markdown(ast.get_docstring(module) or ""))
    yield from _describe_members(module, text.splitlines(), 4)


_WRITERS: dict[str, Callable[..., Iterator[str]]] = {
    "command": write_command,
    "fields": write_fields,
    "file": write_file,
    "module": write_module,
    "object": write_object,
    "presets": write_presets,
    "study": write_study,
}


def _collapse(text: str) -> str:
    """Leave one of several empty lines, but for those in code."""
    return re.sub(
        r"(^```.*?^```$)|\n{3,}", lambda m: m[1] or "\n\n", text, flags=re.DOTALL | re.MULTILINE
    )


def _find(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _head(*names: str) -> Sequence[str]:
    return _row(*names), f"|{'---|' * len(names)}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def _escape(text: str) -> str:
    """Keep what is no code from being read as HTML or as emphasis."""
    return re.sub(r"(`[^`]*`)|([<*](?=\S))", lambda found: found[1] or f"\\{found[2]}", text)


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


def _parse(source: str) -> tuple[Any, Sequence[str]]:
    return ast.parse(source).body[0], source.splitlines()


def _describe_members(
    parent: Any, lines: Sequence[str], level: int, prefix: str = ""
) -> Iterator[str]:
    """Yield the documentation of the public classes and functions in a class or a module."""
    for node in parent.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and re.match(r"[^_]|__", node.name):
            yield from _describe(node, lines, level, f"{prefix}.{node.name}".lstrip("."))


def _describe(node: Any, lines: Sequence[str], level: int, name: str) -> Iterator[str]:
    """Yield heading, declaration and docstring of a class or function that has one."""
    text = ast.get_docstring(node)
    if text is not None:
        first = min(one.lineno for one in (node, *node.decorator_list))
        shown = [(first, node.body[0].lineno - 1)]
        if isinstance(node, ast.ClassDef):
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            shown += [(field.lineno, field.end_lineno or 0) for field in fields]
        declaration = textwrap.dedent(
            "\n".join(line for start, end in shown for line in lines[start - 1 : end])
        )
        declaration = re.sub(r"  # noqa.*", "", declaration)
        yield from (f"{'#' * level} `{name}`", "", "```python", declaration, "```", "")
        yield from _to_markdown(text)
        if isinstance(node, ast.ClassDef):
            yield from _describe_members(node, lines, level + 1, node.name)


def _to_markdown(docstring: str) -> Iterator[str]:
    """Yield the lines of a docstring, whose sections become lists."""
    intro, *sections = _SECTION.split(docstring)
    yield from _to_blocks(intro)
    for title, content in zip(sections[::2], sections[1::2], strict=True):
        body = textwrap.dedent(content).strip()
        if title in ("Returns", "Yields"):
            first, *rest = _to_blocks(body)
            yield from (f"**{title}:** {first}", *rest, "")
        else:
            entries = _ENTRY.findall(body)
            lists = [f"- `{name}`: {' '.join(_escape(text).split())}" for name, text in entries]
            yield from (f"**{title}:**", "", *lists, "")


def _to_blocks(text: str) -> Iterator[str]:
    """Yield the lines of a text; those that are indented become blocks of code."""
    groups = itertools.groupby(text.splitlines(), lambda line: line.startswith("  "))
    for is_indented, lines in groups:
        block = textwrap.dedent("\n".join(lines))
        yield from ("", "```text", block, "```", "") if is_indented else _escape(block).splitlines()
    yield ""


if __name__ == "__main__":
    sys.exit(main())
