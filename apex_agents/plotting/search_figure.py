"""The figure of a search for settings: which fields matter, and how the scores get better."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from apex_agents.plotting import style


@style.styled
def draw_search(importances: Mapping[str, float], scores: Sequence[float]) -> Figure | None:
    """Draw the importances of fields as bars, and the scores of the runs.

    Args:
      importances: share of the differences in score that each field explains, by its name.
      scores: scores in the order in which the runs were started, NaN for runs without one.

    Returns:
      The figure, None without importances.
    """
    if not importances:
        return None
    height = max(3.0, 1.2 + 0.3 * len(importances))
    count = int(np.isfinite(scores).sum())
    title = f"Search for settings: {count} runs with a score, one seed each"
    figure, (bars, progress) = style.new_figure(title, 1, 2, height)
    names = sorted(importances, key=lambda name: importances[name])
    bars.barh(names, [100 * importances[name] for name in names], color=style.DOTS["color"])
    bars.set_xlabel("importance (%)")
    runs = np.arange(len(scores))
    dots = {**style.DOTS, "alpha": 0.8, "markersize": 5}
    progress.plot(runs, scores, label="score of a run", **dots)
    best = np.fmax.accumulate(np.array(scores))
    progress.step(runs, best, where="post", label="best so far", **style.line_style(1))
    progress.set_xlabel("run")
    progress.set_ylabel("score")
    progress.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.show_as_counts(progress.yaxis)
    style.add_legend(figure)
    return figure
