"""A loop that rewrites a headline until it is short enough and says what it is about.

foldlog run examples.polish:loop "A headline about the harbour"
"""

from foldlog import Agent, Registry
from foldlog.runtime import RalphLoop, Scored, Stop


def brevity(scored: Scored) -> float:
    """Return 1 for up to 30 characters, less for more."""
    return min(1.0, 30 / len(scored.output))


def topic(scored: Scored) -> float:
    """Return whether the harbour is named."""
    return 1.0 if "harbour" in scored.output.lower() else 0.0


writer = Agent("writer", model="scripted:examples/polish.json", instructions="Write one headline.")
loop = RalphLoop(
    writer,
    name="polish",
    scorers={"brevity": brevity, "topic": topic},
    stop=Stop(max_iterations=5, score_threshold=0.95),
)
registry = Registry(agents=[loop])
