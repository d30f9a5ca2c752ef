"""Sweeps: a plan of tasks, and two ways to run them: `local.run_tasks` and `ray.run_tasks`."""

from lntrust.experiment.sweep.attempts import carry_out
from lntrust.experiment.sweep.plan import Answer, Summary, Task, Work, datasets_of, forget, plan

__all__ = ["Answer", "Summary", "Task", "Work", "carry_out", "datasets_of", "forget", "plan"]
