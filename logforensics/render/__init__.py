"""Puts an analysis before people and programs: JSON, the terminal, an HTML page. Decides nothing."""
