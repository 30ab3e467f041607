"""The figure of a study: a panel for each task, a curve for each setting."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from apex_agents.metrics import columns
from apex_agents.plotting import style
from apex_agents.plotting.curve_figures import X_LABELS
from apex_agents.plotting.curves import Curve, describe_mean, thin


@style.styled
def draw_study(
    title: str,
    panels: Mapping[str, Mapping[str, Sequence[Curve]]],
    x: str,
    order: Sequence[str] = (),
) -> Figure | None:
    """Draw the mean returns of settings on tasks; None if there are no curves.

    Args:
      title: what is compared.
      panels: by task the curves of each setting, one per seed, by its label.
      x: column of the horizontal axis.
      order: labels in the order of their colours; further ones follow as they come.
    """
    order = list(dict.fromkeys([*order, *(label for found in panels.values() for label in found)]))
    figure, axes_of_panels = style.new_panels(title, len(panels))
    for axes, (task, settings) in zip(axes_of_panels, panels.items(), strict=True):
        for setting, seeds in settings.items():
            if seeds:
                label = f"{setting} ({describe_mean(len(seeds))})" if len(seeds) > 1 else setting
                curves, has_ended = [thin(curve) for curve in seeds], [False for _ in seeds]
                look = style.line_style(order.index(setting))
                style.draw_seeds(axes, curves, has_ended, label, look)
        axes.set_title(task)
        axes.set_xlabel(X_LABELS[x])
        axes.set_ylabel("return per episode")
        style.scale_axes(axes, x == columns.WALL_TIME_SECONDS, "any")
    style.add_legend(figure)
    return figure if any(any(settings.values()) for settings in panels.values()) else None
