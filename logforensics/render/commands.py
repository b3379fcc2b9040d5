"""Breaks a long shell command into lines that can still be copied: at spaces, continued with a backslash."""

from __future__ import annotations


def wrap_command(command: str, width: int) -> list[str]:
    """Return ``command`` in lines of at most ``width`` characters where its words allow it.

    Quoted strings stay whole: a break inside one would change the command.
    """
    lines: list[str] = []
    current = ""
    for word in _words(command):
        room = width - 2  # " \" at the end
        if current and len(current) + 1 + len(word) > room:
            lines.append(current + " \\")
            current = "  " + word
        else:
            current = f"{current} {word}" if current else word
    return [*lines, current] if current else lines


def _words(command: str) -> list[str]:
    """Split at spaces outside quotes."""
    words: list[str] = []
    current, quote = "", ""
    for character in command:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == " ":
            if current:
                words.append(current)
            current = ""
            continue
        current += character
    return [*words, current] if current else words
