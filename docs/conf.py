"""Settings of Sphinx: `make docs` builds the pages of this folder into build/docs."""

import os
import pathlib
import sys

# Its remarks about missing GPU drivers are no warnings of the build.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
DOCS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

project = "apex_agents"
copyright = "the apex_agents developers"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "from_code",
]

myst_heading_anchors = 3
highlight_language = "text"

html_theme = "furo"
html_title = "apex_agents"
html_show_sphinx = False
html_copy_source = False

# Docstrings write code in single backticks.
default_role = "code"
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
maximum_signature_line_length = 80
add_module_names = False
