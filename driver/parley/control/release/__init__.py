"""Releasing claims: the record is cleared, nodes confirm that nothing is prepared, the driver deallocates."""
