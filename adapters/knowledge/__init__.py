"""Long-term knowledge in one SQLite file with a full-text index."""

from .pieces import PIECE_CHARACTERS_MAX, pieces_of
from .store import SqliteKnowledge, knowledge_file

__all__ = ["PIECE_CHARACTERS_MAX", "SqliteKnowledge", "knowledge_file", "pieces_of"]
