"""What every terminal report needs of its console: width, characters it can show, text without markup."""

from __future__ import annotations

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from logforensics.language import _

# Prose gets hard to read beyond this; log lines and tables may use the whole width.
PROSE = 110
_PLAIN = {"…": "...", "·": "-", "→": "->", "▸": ">", "│": "|", "•": "*", "–": "-", "±": "+-"}

# SIMPLE_HEAD in ASCII; rich's own substitute draws a grid
_ASCII_HEAD = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


class Sheet:
    """Prints on one console; ``say`` makes any string fit for it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = max(console.width, 20)
        self.encoding = console.encoding or "ascii"
        self.unicode = self.encoding.lower().replace("_", "-").startswith("utf")
        self.ellipsis = self.say("…")

    def say(self, text: str) -> str:
        """Return the text in characters that the console's encoding has."""
        if self.unicode:
            return text
        plain = "".join(_PLAIN.get(character, character) for character in text)
        try:
            return plain.encode(self.encoding, "backslashreplace").decode(self.encoding)
        except LookupError:
            return plain.encode("ascii", "backslashreplace").decode("ascii")

    def text(self, text: str, style: str = "") -> Text:
        """Return a rich text of it: no markup, no highlighting."""
        return Text(self.say(text), style=style)

    def fit(self, text: str, width: int, *, keep_end: bool = True) -> str:
        """Return the text in at most ``width`` columns: the middle goes, or the end when that says less."""
        text = self.say(text)
        if cell_len(text) <= width:
            return text
        room = max(width - len(self.ellipsis), 1)
        if not keep_end:
            return _prefix(text, room) + self.ellipsis
        head = _prefix(text, (room * 3 + 4) // 5)
        tail = _prefix(text[::-1], room - cell_len(head))[::-1]
        return head + self.ellipsis + tail

    def pieces(self, text: str, width: int, most: int) -> list[str]:
        """Return the text in at most ``most`` lines of ``width`` columns, its middle cut if need be."""
        whole = self.fit(text, width * most)
        soft = _broken(whole, width, at_spaces=True)
        return soft if len(soft) <= most else _broken(whole, width, at_spaces=False)[:most]

    def heading(self, title: str) -> None:
        """Start a section."""
        self.console.print()
        rule = Rule(self.text(title, "bold"), align="left", style="dim", characters="─" if self.unicode else "-")
        self.put(rule, PROSE)

    def prose(self, text: str | Text, indent: int = 0, hanging: str = "") -> None:
        """Print a paragraph, wrapped; ``hanging`` is what its first line starts with (a bullet, a number)."""
        body = text if isinstance(text, Text) else self.text(text)
        width = min(self.width, PROSE)
        if not hanging:
            self.put(Padding(body, (0, 0, 0, indent), expand=False), width)
            return
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(width=cell_len(self.say(hanging)), no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(self.text(hanging), body)
        self.put(Padding(grid, (0, 0, 0, indent), expand=False), width)

    def put(self, what: RenderableType, width: int | None = None) -> None:
        """Print anything that is already safe."""
        self.console.print(what, width=min(width or self.width, self.width), highlight=False, markup=False, emoji=False)

    def table(self, columns: dict[str, int], most: int = 10_000) -> Table:
        """Return an empty table in the house style; the column of width 0 gets what the others leave.

        The width is written back into ``columns``, so that the caller can cut its texts to it.
        """
        table = Table(
            box=box.SIMPLE_HEAD if self.unicode else _ASCII_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            header_style="bold",
        )
        gaps = 2 * (len(columns) - 1)
        left = min(self.width, most) - sum(columns.values()) - gaps
        for name in columns:
            columns[name] = columns[name] or max(left, 8)
            table.add_column(self.text(_(name) if name else ""), width=columns[name], overflow="fold", vertical="top")
        return table


def _prefix(text: str, width: int) -> str:
    used = 0
    for number, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return text[:number]
    return text


def _broken(text: str, width: int, *, at_spaces: bool) -> list[str]:
    """Break a text into lines of ``width`` columns, at a space where one is near the end of a line."""
    lines: list[str] = []
    while text or not lines:
        line = _prefix(text, width) or text[:1]
        space = line.rfind(" ")
        if at_spaces and len(line) < len(text) and space * 3 > len(line) * 2:
            line = line[: space + 1]
        lines.append(line)
        text = text[len(line) :]
    return lines
