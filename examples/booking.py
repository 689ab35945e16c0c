"""An agent that finds rooms and books one, for forks: `booking.json` and `thrifty.json` are two models.

foldlog run examples.booking:agent "A room in Bergen, please" --run-id trip
foldlog fork trip examples.booking:registry --at 10 --model scripted:examples/thrifty.json
"""

from foldlog import Agent, Registry, tool

PRICES_EUR = {"Grand": 240, "Harbour": 120}


@tool(effect="pure")
def find_rooms(city: str) -> str:
    """Find free rooms in a city."""
    return (
        ", ".join(f"{name}: {price} EUR" for name, price in PRICES_EUR.items())
        if city == "Bergen"
        else "none"
    )


@tool(effect="unsafe")
def book_room(hotel: str) -> str:
    """Book a room. It is paid at once."""
    return f"{hotel} is booked for {PRICES_EUR[hotel]} EUR"


agent = Agent(
    "booking",
    model="scripted:examples/booking.json",
    instructions="Find a room and book it.",
    tools=[find_rooms, book_room],
)
registry = Registry(agents=[agent])
