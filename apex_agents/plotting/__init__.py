"""Figures of runs, from the files in their folders; needs neither TensorFlow nor a display."""

from apex_agents.plotting.draw import PLOTS, draw_run, draw_runs, draw_search, draw_study

__all__ = ["PLOTS", "draw_run", "draw_runs", "draw_search", "draw_study"]
