"""The promises of a runner as tests: subclass a suite, override its fixtures, and collect the subclass with pytest.

The commands are those of a POSIX shell: the runner needs `sh`, `cat`, `sleep`, `env`, `head`, `tr` and `setsid`.
"""

from .suite import LimitsSuite, NothingRunner, ToolRunnerSuite, sh

__all__ = ["LimitsSuite", "NothingRunner", "ToolRunnerSuite", "sh"]
