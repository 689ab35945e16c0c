"""A cashier whose payments are verified at the bank, after each call and in place of a call that a crash left open.

foldlog run examples.cashier:agent "Pay invoice 7"
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from foldlog import Agent, Evidence, Registry, ToolContext, postcondition, tool

BANK, CLOSED = Path("bank.json"), Path("bank.closed")
PAID = {"json_path": {"path": "$['${invoice}'].amount_eur", "equals": "${amount_eur}"}}


def accounts() -> dict[str, Any]:
    """Return the bank's records, which are a file here."""
    return json.loads(BANK.read_text()) if BANK.exists() else {}


def book(invoice: str, amount_eur: int) -> None:
    """Make the payment, which must not happen twice."""
    BANK.write_text(json.dumps({**accounts(), invoice: {"amount_eur": amount_eur}}))


def at_the_bank() -> Evidence:
    """Look up the payment, without changing anything."""
    if CLOSED.exists():
        raise ConnectionError("the bank is closed")
    return Evidence(data=accounts())


@postcondition(PAID, probe=at_the_bank)
@tool(effect="unsafe")
async def pay(invoice: str, amount_eur: int, context: ToolContext, receipt_s: float = 0) -> str:
    """Pay an invoice, once, and print a receipt, which may take so many seconds."""
    book(invoice, amount_eur)
    context.progress(1, 2, "the bank has the order")
    await asyncio.sleep(receipt_s)
    return f"{amount_eur} EUR for invoice {invoice}, receipt printed"


agent = Agent("cashier", model="scripted:examples/cashier.json", tools=[pay])
registry = Registry(agents=[agent])
