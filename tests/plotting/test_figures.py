"""Tests of the figures: their curves and values, and when there is no figure."""

import logging
import warnings

import matplotlib
import numpy as np
import pytest

from apex_agents.plotting import style
from apex_agents.plotting.curve_figures import (
    draw_learning,
    draw_memory,
    draw_metrics,
    draw_returns,
    draw_speeds,
)
from apex_agents.plotting.exploration import draw_exploration
from apex_agents.plotting.histogram_figures import draw_priorities, draw_staleness
from apex_agents.plotting.run_groups import group_runs
from apex_agents.plotting.search_figure import draw_search
from apex_agents.runs.setting_labels import read_labels, record_labels
from apex_agents.studies.results import make_groups
from apex_agents.studies.study import Run, Setting, Study

FIGURES = [
    draw_returns,
    draw_speeds,
    draw_learning,
    draw_memory,
    draw_metrics,
    draw_priorities,
    draw_staleness,
    draw_exploration,
]


def evaluation(step, mean_return, standard_error=0.5) -> dict[str, float]:
    """Return a row of the evaluator, with 10 actor steps and 0.5 s per learner step."""
    return {
        "learner_steps": step,
        "actor_steps": 10 * step,
        "wall_time_seconds": step / 2,
        "mean_return": mean_return,
        "standard_error": standard_error,
        "num_episodes": 20,
    }


def learner_row(step, loss=0.5) -> dict[str, float]:
    metrics = {"loss": loss, "td_error": 0.1, "gradient_norm": 2.0, "q_value": -step}
    speeds = {"sample_age_steps": 5.0, "learner_steps_per_second": 2.0, "data_wait_fraction": 0.25}
    return {"learner_steps": step, "wall_time_seconds": step / 2, **metrics, **speeds}


def replay_row(seconds, inserts, samples) -> dict[str, float]:
    speeds = {"inserts_per_second": inserts, "samples_per_second": samples}
    return {"wall_time_seconds": seconds, "replay_size": 10 * seconds, **speeds}


def env_row(seconds, epsilon, episodes, mean_return) -> dict[str, float]:
    numbers = {"epsilon": epsilon, "episodes": episodes, "episode_return": mean_return}
    return {"wall_time_seconds": seconds, **numbers}


def histogram_rows(step, *shares, quantities=("priority", "age_steps")) -> list[dict]:
    """Return rows of histograms, by default of priorities from 1 on and of ages from 0 on."""
    return [
        {
            "learner_steps": step,
            "quantity": quantity,
            "lower": 0.0 if quantity == "age_steps" and not i else 10 ** (i / 4),
            "sampled_share": share,
            "replay_share": share,
        }
        for quantity in quantities
        for i, share in enumerate(shares)
    ]


def lines(axes, label="mean of an evaluation") -> list:
    """Return the lines of a panel with this label, by default a single run's returns."""
    return [line for line in axes.get_lines() if line.get_label() == label]


def points(axes, label="mean of an evaluation") -> tuple[list, list]:
    """Return x and y of the only line of a panel with this label."""
    (line,) = lines(axes, label)
    return line.get_xdata().tolist(), line.get_ydata().tolist()


SINCE = "mean since the point before"


def legend_texts(figure) -> list[str]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    return [text.get_text() for legend in legends if legend for text in legend.get_texts()]


def test_returns_of_one_run(make_run):
    rows = [evaluation(10, 1.0), evaluation(20, 3.0), evaluation(40, 2.0)]
    groups = group_runs([make_run("a", {"evaluator": rows}, target_return=3.5)])
    figure = draw_returns(groups)
    assert figure.get_suptitle() == "Ape-X DQN on catch, seed 0"
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels == ["actor steps", "learner steps", "wall time (s)"]
    assert figure.axes[0].get_ylabel() == "return per episode"
    for axes, x in zip(figure.axes, ([100, 200, 400], [10, 20, 40], [5, 10, 20]), strict=True):
        assert points(axes) == (x, [1, 3, 2])
        (target,) = lines(axes, "target return")
        assert list(target.get_ydata()) == [3.5, 3.5]
        (band,) = axes.collections
        assert band.get_paths()[0].get_extents().intervaly.tolist() == [0.5, 3.5]
        assert axes.get_xlim() == (0, pytest.approx(1.04 * x[-1]))
    assert legend_texts(figure) == [
        "mean of an evaluation",
        "± standard error over episodes",
        "target return",
    ]


def test_the_line_of_a_run_breaks_where_it_was_stopped(make_run):
    rows = [evaluation(10, 1.0), evaluation(20, 3.0), None, evaluation(30, 2.0)]
    figure = draw_returns(group_runs([make_run("a", {"evaluator": rows})]))
    for axes in figure.axes:
        np.testing.assert_array_equal(points(axes)[1], [1, 3, np.nan, 2])


def test_points_close_to_each_other_are_inside_of_all_panels(make_run):
    logs = {
        "learner": [learner_row(1000), learner_row(1001)],
        "evaluator": [evaluation(2000, 1.0), evaluation(2001, 3.0)],
    }
    groups = group_runs([make_run("a", logs)])
    for axes in [*draw_learning(groups).axes, *draw_returns(groups).axes]:
        assert axes.dataLim.x1 < 0.97 * axes.get_xlim()[1]


def test_returns_of_seeds_are_one_curve_with_a_band_and_faint_ones(make_run):
    runs = [
        make_run(f"seed{i}", {"evaluator": [evaluation(10, i), evaluation(20, i)]}, seed=i)
        for i in (0, 1, 2, 6, 100)
    ]
    figure = draw_returns(group_runs(runs))
    assert figure.get_suptitle() == "Ape-X DQN on catch, 5 seeds"
    for axes in figure.axes:
        assert len(lines(axes, "single seeds")) == 5
        np.testing.assert_allclose(points(axes, "interquartile mean of 5 seeds")[1], 3)
        assert len(axes.collections) == 1
    assert legend_texts(figure) == [
        "interquartile mean of 5 seeds",
        "95 % bootstrap confidence interval",
        "single seeds",
    ]


def test_fewer_than_five_seeds_have_no_interval(make_run):
    runs = [make_run(str(i), {"evaluator": [evaluation(10, i)]}, seed=i) for i in (0, 1, 2, 9)]
    figure = draw_returns(group_runs(runs))
    assert [list(axes.collections) for axes in figure.axes] == [[], [], []]
    assert points(figure.axes[0], "mean of 4 seeds") == ([100], [3])
    assert legend_texts(figure) == ["mean of 4 seeds", "single seeds"]


def test_seeds_that_ended_at_their_target_are_carried_forward(make_run):
    def make(seed: int, last_step: int, last_return: float, **run):
        rows = [evaluation(10, 0.0), evaluation(last_step, last_return)]
        return make_run(f"seed{seed}", {"evaluator": rows}, seed=seed, target_return=8.0, **run)

    figure = draw_returns(
        group_runs([make(0, 20, 8.0, finished=True), make(1, 40, 16.0, finished=True)])
    )
    x, y = points(figure.axes[0], "mean of 2 seeds")
    assert (x[0], x[-1]) == (100, 400)
    assert (y[0], y[-1]) == (0, 12)
    mark = "seed ended at its target, carried forward"
    assert points(figure.axes[0], mark) == ([200], [8])
    assert mark in legend_texts(figure)
    # One that was stopped, or that ended below its target, could have become better or worse.
    for seed, last_return, finished in ((2, 8.0, False), (3, 7.0, True)):
        stopped = make(seed, 20, last_return, finished=finished)
        figure = draw_returns(group_runs([stopped, make(seed + 2, 40, 16.0, finished=True)]))
        assert points(figure.axes[0], "mean of 2 seeds")[0][-1] == 200
        assert lines(figure.axes[0], mark) == []


def test_what_is_carried_forward_is_the_last_of_many_returns(make_run):
    def make(seed: int, last_step: int, last_return: float):
        rows = [evaluation(step, 0.0) for step in range(last_step)]
        logs = {"evaluator": [*rows, evaluation(last_step, last_return)]}
        return make_run(f"seed{seed}", logs, seed=seed, target_return=8.0, finished=True)

    figure = draw_returns(group_runs([make(0, 500, 9.0), make(1, 1000, 10.0)]))
    x, y = points(figure.axes[0], "mean of 2 seeds")
    assert (x[-1], y[-1]) == (10_000, (9.0 + 10.0) / 2)
    mark = "seed ended at its target, carried forward"
    assert points(figure.axes[0], mark) == ([5_000], [9.0])


def test_seeds_without_a_common_range_have_no_mean_and_are_drawn_clearly(make_run):
    rows = [[evaluation(step, 1), evaluation(step + 10, 2)] for step in (10, 30)]
    runs = [
        make_run(f"{size}{i}", {"evaluator": rows[i]}, agent={"batch_size": size}, seed=i)
        for size in (8, 16)
        for i in range(2)
    ]
    figure = draw_returns(group_runs(runs))
    for axes in figure.axes:
        assert points(axes, "batch_size=8 (mean of 2 seeds)") == ([], [])
        drawn = lines(axes, "single seeds")
        assert [line.get_xdata().tolist()[0] for line in drawn] == 2 * [
            line.get_xdata().tolist()[0] for line in drawn[:2]
        ]
        assert all(line.get_alpha() >= 0.8 for line in drawn)
        assert drawn[0].get_color() != drawn[2].get_color()
        assert {line.get_linestyle() for line in drawn} == {"-"}  # Dashes are those of a mean.
    # Both settings are in the legend nevertheless.
    texts = ["batch_size=8 (mean of 2 seeds)", "batch_size=16 (mean of 2 seeds)", "single seeds"]
    assert legend_texts(figure) == texts
    assert_fits(figure)


def test_long_names_of_settings_fit_below_the_panels(make_run):
    runs = [
        make_run(
            f"{period}-{exponent}-{i}",
            {"evaluator": [evaluation(10, period), evaluation(20, i)]},
            agent={
                "target_update_period": period,
                "importance_sampling_exponent": exponent,
                "mlp_hidden_sizes": [period, 2 * period, 4 * period, 8 * period, 16 * period],
            },
            seed=i,
        )
        for period in (1024, 2048, 4096)
        for exponent in (0.4, 0.625)
        for i in range(2)
    ]
    figure = draw_returns(group_runs(runs))
    assert len(legend_texts(figure)) == 7  # Six settings and single seeds.
    assert_fits(figure)


def assert_fits(figure) -> None:
    """Check that a figure has a layout with panels of a fair size and nothing outside of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        style.encode(figure, "png")
    for axes in figure.axes:
        size = axes.get_window_extent().size / figure.dpi
        assert min(size) > 1.5, size  # Inches.
    low, high = figure.get_tightbbox().get_points()
    assert min(low) >= 0
    assert all(high <= figure.get_size_inches())


def test_settings_are_compared(make_run):
    rows = {"evaluator": [evaluation(10, 1), evaluation(20, 2)]}
    runs = [
        make_run("a", rows, agent={"batch_size": 8}, seed=0),
        make_run("b", rows, agent={"batch_size": 8}, seed=1),
        make_run("c", rows, agent={"batch_size": 16}),
    ]
    figure = draw_returns(group_runs(runs))
    assert figure.get_suptitle() == "Ape-X DQN on catch"
    for axes in figure.axes:
        (first,), (second,) = (
            lines(axes, "batch_size=8 (mean of 2 seeds)"),
            lines(axes, "batch_size=16"),
        )
        assert first.get_color() != second.get_color()
        assert first.get_linestyle() != second.get_linestyle()
    texts = ["batch_size=8 (mean of 2 seeds)", "batch_size=16"]
    assert legend_texts(figure)[:2] == texts
    assert legend_texts(figure)[-1] == "single seeds"  # The entry belongs to no single setting.


def test_a_target_that_is_far_off_does_not_flatten_the_curve(make_run):
    rows = [evaluation(10, 1.0, 0.0), evaluation(20, 3.0, 0.0)]
    figure = draw_returns(group_runs([make_run("a", {"evaluator": rows}, target_return=90.0)]))
    assert legend_texts(figure) == ["mean of an evaluation"]


def test_tasks_have_panels_of_their_own(make_run):
    runs = [
        make_run(f"{task}{i}", {"evaluator": [evaluation(10, i), evaluation(20, i)]}, task=task)
        for task in ("pong", "catch", "breakout", "joust")
        for i in range(2)
    ]
    figure = draw_returns(group_runs(runs))
    visible = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in visible] == ["pong", "catch", "breakout", "joust"]
    for axes in visible:
        assert len(lines(axes, "mean of 2 seeds")) == 1
        assert len(lines(axes, "single seeds")) == 2
    assert legend_texts(figure)[0] == "mean of 2 seeds"


def test_settings_are_compared_for_each_task(make_run):
    runs = [
        make_run(
            f"{task}{size}",
            {"evaluator": [evaluation(10, size), evaluation(20, size)]},
            task=task,
            agent={"batch_size": size},
        )
        for task in ("pong", "catch")
        for size in (8, 16)
    ]
    figure = draw_returns(group_runs(runs))
    assert [axes.get_title() for axes in figure.axes] == ["pong", "catch"]
    colors = []
    for axes in figure.axes:
        drawn = [line for size in (8, 16) for line in lines(axes, f"batch_size={size}")]
        assert [line.get_ydata().tolist() for line in drawn] == [[8, 8], [16, 16]]
        colors.append([line.get_color() for line in drawn])
    assert colors[0] == colors[1]
    assert colors[0][0] != colors[0][1]
    texts = ["batch_size=8", "± standard error over episodes", "batch_size=16"]
    assert legend_texts(figure) == texts


def test_speeds(make_run):
    logs = {
        "learner": [learner_row(10), learner_row(20)],
        "replay": [replay_row(1, 0, 0), replay_row(2, 4, 24), replay_row(90, 4, 32)],
    }
    figure = draw_speeds(group_runs([make_run("a", logs)]))
    acting, learning, ratio, waiting, size, returns = figure.axes
    expected = {acting: [0, 4, 4], learning: [2, 2], waiting: [25, 25], size: [10, 20, 900]}
    for axes, values in expected.items():
        assert points(axes, "_" if axes is size else SINCE)[1] == values
        assert axes.get_ylim()[0] == 0
    assert waiting.get_ylim() == (0, 100)
    assert lines(returns) == []
    assert points(ratio, SINCE) == ([2, 90], [6, 8])
    for axes, value in ((ratio, 8), (size, 1000)):
        (configured,) = lines(axes, "as configured")
        assert list(configured.get_ydata()) == [value, value]
        assert axes.get_ylim()[1] > value  # Within the panel.
    assert legend_texts(figure) == [SINCE, "as configured"]


def test_the_replay_of_a_run_whose_transitions_are_several_items(make_run):
    logs = {"learner": [learner_row(10)], "replay": [replay_row(1, 0, 0), replay_row(24, 4, 24)]}
    agent = {"replay": {"max_size": 1000, "samples_per_insert": 8.0, "replicas": 4}}
    *_, size, _ = draw_speeds(group_runs([make_run("a", logs, agent)])).axes
    assert list(lines(size, "as configured")[0].get_ydata()) == [250, 250]


def test_learning(make_run):
    rows = [learner_row(step, loss) for step, loss in ((1, 100.0), (2, 1.0), (3, np.nan))]
    logs = {"learner": rows, "evaluator": [evaluation(2, 7)]}
    figure = draw_learning(group_runs([make_run("a", logs)]))
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels[:2] == ["loss (log)", "mean |TD error|"]
    loss, td_error, *_, q_value, age, returns = figure.axes
    assert points(loss, SINCE)[1] == [100, 1]
    assert (loss.get_yscale(), td_error.get_yscale()) == ("log", "linear")
    assert points(q_value, SINCE)[1] == [-1, -2, -3]
    assert points(age, SINCE)[1] == [5, 5, 5]
    assert points(returns)[1] == [7]
    texts = [SINCE, "mean of an evaluation", "± standard error over episodes"]
    assert legend_texts(figure) == texts


def staleness_row(step, first, last):
    return {**learner_row(step), "delta_q_first": first, "delta_q_last": last}


def test_delta_q_of_both_steps(make_run):
    rows = [staleness_row(1, 0.5, 0.25), staleness_row(2, 0.125, 0.0)]
    figure = draw_memory(group_runs([make_run("a", {"learner": rows})]))
    first, last, _ = figure.axes
    assert points(first, SINCE) == ([1, 2], [0.5, 0.125])
    assert points(last, SINCE) == ([1, 2], [0.25, 0.0])


def test_numbers_of_info_over_actor_steps(make_run):
    rows = [{**evaluation(step, 1), "is_success": step / 4, "x": float("nan")} for step in (1, 3)]
    figure = draw_metrics(group_runs([make_run("a", {"evaluator": rows})]))
    success, _ = figure.axes  # A column without any number has no panel.
    assert success.get_ylabel() == "is_success"
    assert points(success, "mean of an evaluation")[1] == [0.25, 0.75]
    without = [{**row, "is_success": float("nan")} for row in rows]
    assert draw_metrics(group_runs([make_run("b", {"evaluator": without})])) is None


def test_an_entropy_of_the_users_makes_no_actor_critic(make_run):
    rows = [{**learner_row(step), "entropy": 0.5} for step in (1, 2)]
    figure = draw_learning(group_runs([make_run("a", {"learner": rows})]))
    assert figure.axes[1].get_ylabel() == "mean |TD error|"


def test_several_learners_have_the_figure_of_one(make_run):
    rows = [{**learner_row(step), "staleness_steps": 2.0} for step in (1, 2)]
    figure = draw_learning(group_runs([make_run("a", {"learner": rows})]))
    assert figure.axes[1].get_ylabel() == "mean |TD error|"


@pytest.mark.parametrize("losses", [(-2.0, 3.0), (-2.0, -1.0)])
def test_negative_losses_are_in_their_panel(losses, make_run):
    rows = [learner_row(step, loss) for step, loss in enumerate(losses, start=1)]
    low, high = draw_learning(group_runs([make_run("a", {"learner": rows})])).axes[0].get_ylim()
    assert low <= losses[0] and high >= losses[1]


@pytest.mark.parametrize(("lowest", "labels"), [(4.0, {"5", "10", "50"}), (0.001, {"0.01", "1"})])
def test_log_axes_are_labelled(lowest, labels, make_run):
    rows = [learner_row(1, 100.0), learner_row(2, lowest)]
    axes = draw_learning(group_runs([make_run("a", {"learner": rows})])).axes[0]
    axes.figure.draw_without_rendering()
    assert labels <= {text.get_text() for text in axes.get_yticklabels()}


def test_returns_alone_make_no_figure_of_learning(make_run):
    assert draw_learning(group_runs([make_run("a", {"evaluator": [evaluation(2, 7)]})])) is None


def test_many_rows_become_some_points_with_their_range(make_run):
    rows = [learner_row(step, loss=1 + step % 2) for step in range(1, 1201)]
    figure = draw_learning(group_runs([make_run("a", {"learner": rows})]))
    np.testing.assert_allclose(
        points(figure.axes[0], "mean of neighbouring points")[1], [1.5] * 120
    )
    (band,) = figure.axes[0].collections
    assert band.get_paths()[0].get_extents().intervaly.tolist() == [1, 2]
    assert legend_texts(figure) == ["mean of neighbouring points", "range of averaged points"]
    assert [text.get_text() for text in figure.axes[5].texts] == ["no rows yet"]


def test_priorities(make_run):
    rows = histogram_rows(1, 0.25, 0.75) + histogram_rows(50, 0.5, 0.5)
    figure = draw_priorities(group_runs([make_run("a", {"learner_histograms": rows})]))
    newest, history, newest_age, _, *_ = figure.axes
    for axes in (newest, newest_age):
        for patch in axes.patches:
            outline = patch.get_xy()  # It shows a share of 50 % in each of two bins.
            assert outline[:, 1].max() == pytest.approx(50)
            assert np.ptp(outline[:, 0]) == pytest.approx(2 / 4)
    shares = history.collections[0].get_array()  # [bins, times]
    np.testing.assert_allclose(shares, [[25, 50], [75, 50]])
    assert [text.get_text() for text in newest.get_xticklabels()] == ["1"]
    assert [text.get_text() for text in newest_age.get_xticklabels()] == ["0"]
    assert newest.get_title() == "at learner step 50"


def test_priorities_are_those_of_one_run(make_run):
    rows = {"learner_histograms": histogram_rows(1, 1.0)}
    assert draw_priorities(group_runs([make_run("a", rows)])) is not None
    assert draw_priorities(group_runs([make_run("b", rows), make_run("c", rows)])) is None
    assert draw_priorities(group_runs([make_run("d", rows), make_run("e", rows, task="x")])) is None


def test_staleness_is_beside_what_the_first_of_several_learners_samples(make_run):
    gradients = {"quantities": ["staleness_steps"]}
    rows = histogram_rows(1, 1.0, **gradients) + histogram_rows(50, 0.25, 0.75, **gradients)
    logs = {"learner_histograms": rows, "learner_0_histograms": histogram_rows(9, 0.5, 0.5)}
    groups = group_runs([make_run("a", logs)])
    figure, priorities = draw_staleness(groups), draw_priorities(groups)
    newest, history, *_ = figure.axes
    (patch,) = newest.patches
    heights = [round(height) for height in dict.fromkeys(patch.get_xy()[:, 1])]
    assert (heights, legend_texts(figure)) == ([0, 25, 75], ["applied gradients"])
    np.testing.assert_allclose(history.collections[0].get_array(), [[100, 25], [0, 75]])
    assert newest.get_title() == "at learner step 50"
    assert priorities.axes[0].get_title() == "at learner step 9"
    logs["learner_histograms"] = histogram_rows(5, 1.0)  # The run began with one learner.
    figure = draw_priorities(group_runs([make_run("b", logs)]))
    titles = [axes.get_title() for axes in figure.axes]
    assert [title for title in titles if title] == 2 * ["at learner step 9"]


def test_exploration_shows_the_newest_quarter(make_run):
    logs = {
        "actor_0_envs": [
            env_row(10, 0.4, 5, -100.0),  # Too old: 75 s are shown of 10 to 310.
            env_row(240, 0.4, 1, 2.0),
            env_row(310, 0.4, 3, 6.0),
        ],
        "actor_1_envs": [env_row(300, 0.1, 2, 8.0), env_row(300, 0.1, 0, np.nan)],
        "evaluator": [evaluation(2, 0.0), evaluation(600, 7.0), evaluation(602, 9.0)],
    }
    figure = draw_exploration(group_runs([make_run("a", logs)]))
    (axes,) = figure.axes
    mean, dots, _, evaluator = axes.get_lines()
    assert not axes.containers
    assert sorted(zip(dots.get_xdata(), dots.get_ydata(), strict=True)) == [
        (0.1, 8),
        (0.4, 2),
        (0.4, 6),
    ]
    assert mean.get_xdata().tolist() == [0.1, 0.4]
    assert mean.get_ydata().tolist() == [8, 5]  # (1 * 2 + 3 * 6) / 4
    assert list(evaluator.get_ydata()) == [8, 8]  # (7 + 9) / 2
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.1", "0.4"]
    assert legend_texts(figure) == [
        "mean of 2 to 4 episodes at each epsilon, by all parameters of that time",
        "mean of the episodes that one environment ended within 5 s",
        "evaluator (epsilon 0.01): 2 evaluations, each of one set of parameters",
    ]


def test_exploration_of_seeds(make_run):
    runs = [
        make_run(
            f"seed{i}",
            {"actor_0_envs": [env_row(10, 0.4, 1, i), env_row(10, 0.1, 1, 2 * i)]},
            seed=i,
        )
        for i in (0, 1, 2, 6, 100)
    ]
    runs.append(make_run("nothing", {"actor_0_envs": [env_row(10, 0.4, 0, np.nan)]}, seed=9))
    figure = draw_exploration(group_runs(runs))
    mean = "interquartile mean of 5 seeds"
    # (1 + 2 + 6) / 3 of 0.4, twice that of 0.1.
    assert points(figure.axes[0], mean) == ([0.1, 0.4], [6, 3])
    assert figure.axes[0].containers[0].has_yerr
    assert legend_texts(figure) == [mean, "95 % bootstrap confidence interval"]
    few = draw_exploration(group_runs(runs[:4]))
    assert not few.axes[0].containers
    assert legend_texts(few) == ["mean of 4 seeds"]


def test_exploration_of_seeds_that_share_no_epsilon(make_run):
    runs = [
        make_run(
            f"seed{i}",
            {"actor_0_envs": [env_row(10, 0.1 + 0.1 * i, 1, 1.0), env_row(10, 0.05, i, 1.0)]},
            seed=i,
        )
        for i in range(5)
    ]
    assert draw_exploration(group_runs(runs)) is None


def test_exploration_without_a_ladder(make_run):
    rows = [env_row(10, 0.4, 1, 1.0), env_row(12, 0.4, 1, 2.0)]
    assert draw_exploration(group_runs([make_run("dqn", {"actor_0_envs": rows})])) is None
    rows = [{"wall_time_seconds": 1, "noise_scale": 0.3, "episodes": 1, "episode_return": 2.0}]
    assert draw_exploration(group_runs([make_run("dpg", {"actor_0_envs": rows})])) is None


def test_exploration_of_a_policy_of_the_users(make_run):
    rows = [env_row(10, 0.4, 1, 1.0), env_row(10, 0.1, 1, 2.0)]
    logs = {"actor_0_envs": rows, "evaluator": [evaluation(10, 1.5)]}
    figure = draw_exploration(group_runs([make_run("a", logs, agent={"n_step": 5})]))
    assert legend_texts(figure)[-1] == "evaluator: one evaluation of one set of parameters"


def colors(figure) -> dict[str, str]:
    """Return the colours of the lines of all nets by their labels."""
    drawn = [line for axes in figure.axes for line in axes.get_lines()]
    return {line.get_label(): line.get_color() for line in drawn if "net" in line.get_label()}


def test_the_figures_of_a_folder_have_one_label_and_colour_for_a_setting(make_run, tmp_path):
    rows = {"evaluator": [evaluation(10, 1), evaluation(20, 2)], "learner": [learner_row(5)]}
    agents = {"wide net": {"a": 1, "b": 1}, "deep net": {"a": 2, "b": 2}, "old net": {"a": 3}}
    runs = {
        label: make_run(f"catch/setting={label[:-4]}/seed_0", rows, agent=agent)
        for label, agent in agents.items()
    }
    record_labels(tmp_path, {run.path.parent: label for label, run in runs.items()})
    study = Study("title", {label: Setting("", {}) for label in agents}, ("catch",), {})
    members = {n: Run("catch", (("setting", n),), 0, run.path, ()) for n, run in runs.items()}
    of_study = colors(draw_returns(make_groups(study, (), members.values()), "title"))
    assert len({*of_study.values()}) == 3
    for some in (["old net", "deep net", "wide net"], ["old net", "deep net"]):
        expected = {label: of_study[label] for label in some}
        groups = group_runs([runs[label] for label in some])
        part = make_groups(study, (), [members[label] for label in some], read_labels(tmp_path))
        for figure in (draw_returns(groups), draw_learning(groups), draw_returns(part, "title")):
            assert colors(figure) == expected


def test_a_search():
    figure = draw_search({"n_step": 0.25, "lr": 0.75}, [1.0, np.nan, 3.0, 2.0])
    bars, progress = figure.axes
    assert figure.get_suptitle() == "Search for settings: 3 runs with a score, one seed each"
    assert [text.get_text() for text in bars.get_yticklabels()] == ["n_step", "lr"]
    assert [patch.get_width() for patch in bars.patches] == [25, 75]
    scores, best = progress.get_lines()
    np.testing.assert_array_equal(scores.get_ydata(), [1, np.nan, 3, 2])
    assert best.get_ydata().tolist() == [1, 1, 3, 3]
    assert draw_search({}, [1.0]) is None


NOTHING = {
    "no_files": {},
    "nothing_finite": {
        "evaluator": [evaluation(1, np.nan)],
        "learner": [{**learner_row(np.nan), "wall_time_seconds": np.nan}],
        "replay": [replay_row(np.nan, np.nan, np.nan)],
        "actor_0_envs": [env_row(1, 0.4, 0, np.nan), env_row(1, 0.2, 0, np.nan)],
        "learner_histograms": [{**histogram_rows(1, 0.5)[0]}],
    },
    "other_columns": {
        name: [{"something": 1.0}]
        for name in ("evaluator", "learner", "replay", "actor_0_envs", "learner_histograms")
    },
    "text_for_numbers": {
        "evaluator": [dict.fromkeys(evaluation(1, 1), "x")],
        "learner": [dict.fromkeys(learner_row(1), "x")],
        "replay": [dict.fromkeys(replay_row(1, 1, 1), "x")],
        "actor_0_envs": [dict.fromkeys(env_row(1, 0.4, 1, 1), "x")],
        "learner_histograms": [dict.fromkeys(histogram_rows(1, 1.0)[0], "priority")],
    },
}


@pytest.mark.parametrize("logs", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("draw", FIGURES)
def test_a_figure_without_data_is_left_out(draw, logs, make_run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw(group_runs([make_run("a", logs), make_run("b", logs, seed=1)])) is None


ONE_ROW = {
    draw_returns: {"evaluator": [evaluation(1, 1)]},
    draw_speeds: {"replay": [replay_row(5, 1, 1)]},
    draw_learning: {"learner": [learner_row(1)]},
    draw_memory: {"learner": [staleness_row(1, 0.5, 0.25)]},
    draw_metrics: {"evaluator": [{**evaluation(1, 1), "is_success": 0.5}]},
    draw_priorities: {"learner_histograms": histogram_rows(1, 1.0)},
    draw_staleness: {"learner_histograms": histogram_rows(1, 1.0, quantities=["staleness_steps"])},
    draw_exploration: {"actor_0_envs": [env_row(1, 0.4, 1, 1), env_row(1, 0.2, 1, 1)]},
}


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize("draw", FIGURES)
def test_one_row_is_enough_and_nothing_is_left_behind(draw, suffix, make_run, caplog):
    before = dict(matplotlib.rcParams)
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        figure = draw(group_runs([make_run("a", ONE_ROW[draw])]))
        content = style.encode(figure, suffix)
        assert content == style.encode(figure, suffix)
    assert content.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    assert caplog.messages == []
    assert dict(matplotlib.rcParams) == before
