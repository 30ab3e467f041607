"""Settings of Sphinx: `make docs` builds the pages of this folder into build/docs."""

project = "apex_agents"
copyright = "the apex_agents developers"
extensions = ["myst_parser"]

myst_heading_anchors = 3
highlight_language = "text"

html_theme = "furo"
html_title = "apex_agents"
html_show_sphinx = False
html_copy_source = False
