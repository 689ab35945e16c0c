"""The table of all routes: method, path, role, shapes, endpoint. A path without braces comes before one with them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from .openapi import openapi
