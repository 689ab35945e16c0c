"""An agent that edits files below the working directory with the built-in tools.

foldlog run examples.editor:agent "Let greet.py greet by name"
"""

from pathlib import Path

from foldlog import Agent, Registry
from foldlog.adapters.builtin import builtin_tools

agent = Agent(
    "editor",
    model="scripted:examples/editor.json",
    instructions="Read before you edit.",
    tools=["grep_files", "read_file", "apply_patch"],
)
registry = Registry(agents=[agent], tools=builtin_tools(Path.cwd()))
