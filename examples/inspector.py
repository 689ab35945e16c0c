"""An agent that reads a PDF and a picture: it compares an invoice with a photo of what arrived.

foldlog run examples.inspector:registry "Is everything there?" --file examples/parcel.png
"""

from pathlib import Path

from foldlog import Agent, Registry, tool
from foldlog.runtime import File


@tool(effect="pure")
def open_invoice(number: int) -> list[str | File]:
    """Open the invoice of a delivery, a PDF."""
    return [f"Invoice {number}:", File.from_path(Path(__file__).with_name("invoice.pdf"))]


agent = Agent(
    "inspector",
    model="scripted:examples/inspector.json",  # any model that takes pictures and PDF, such as openai-responses:gpt-4o
    instructions="Compare the photo of a delivery with its invoice.",
    tools=[open_invoice],
)
registry = Registry(agents=[agent])
