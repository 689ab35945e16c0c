"""A swarm from a file, newsroom.toml: a reporter, and a desk that shortens a text until nothing is left to cut.

foldlog agents check examples/newsroom.toml
foldlog run examples.newsroom:swarm "The ferry is back"
"""

import tomllib
from pathlib import Path

from foldlog import Registry, Swarm

swarm = Swarm.from_config(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")))
registry = Registry(agents=[swarm])
