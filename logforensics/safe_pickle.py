"""Reads pickles that hold plain values, and cannot do anything else.

A pickle is a program for a small stack machine, and ``pickle.load`` runs it: a file found beside a log could
run anything. This machine knows only the instructions that make dictionaries, lists, tuples, numbers, texts,
bytes, booleans and None. Those that look up a class, call something or ask for outside objects do not exist
here, so there is nothing to forbid. ``pickle.Unpickler`` with a closed ``find_class`` is not enough: a memo
index of four thousand million takes all memory, and a tuple that holds itself twice, sixty deep, never ends
being hashed as a key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from logforensics.language import _

# A recorder of 20,000 calls with whole stacks writes some 20 MB.
MOST_BYTES = 64 << 20
_MOST_CONTAINERS = 4_000_000
_MOST_OPEN = 100  # marks open at the same time: as deep as containers can be nested
_MOST_INTEGER_BYTES = 16
_MOST_PROTOCOL = 5
_BINGET, _LONG_BINGET = 0x68, 0x6A

_U16, _I32, _U32, _U64 = (struct.Struct(code).unpack_from for code in ("<H", "<i", "<I", "<Q"))
_FLOAT = struct.Struct(">d").unpack_from


class UnsafePickleError(ValueError):
    """The pickle is broken, too large, or holds something that is no plain value. The text says which."""


def load_plain(data: bytes) -> Any:
    """Return the value that a pickle (protocol 2 to 5) holds.

    Raises UnsafePickleError for anything but dictionaries with plain keys, lists, tuples, numbers, texts, bytes,
    booleans and None.
    """
    if len(data) > MOST_BYTES:
        raise UnsafePickleError(_("larger than {most} MB").format(most=MOST_BYTES >> 20))
    if data[:1] != b"\x80" or len(data) < 2:
        raise UnsafePickleError(_("no pickle"))
    if not 2 <= data[1] <= _MOST_PROTOCOL:
        raise UnsafePickleError(_("pickle protocol {version} is not known").format(version=data[1]))
    return _Machine(data).run()


class _Machine:
    """The stack machine. Each instruction's method gets the place behind its byte and returns the next place."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []  # the stacks below the open marks
        self.memo: dict[int, Any] = {}
        self.containers = 0

    def run(self) -> Any:
        data, operations = self.data, _OPERATIONS
        place, size = 2, len(self.data)
        try:
            while place < size:
                code = data[place]
                if code == _STOP:
                    break
                place = operations[code](self, place + 1)
            else:
                raise UnsafePickleError(_("cut off"))
        except (IndexError, struct.error) as error:
            raise UnsafePickleError(_("cut off or broken")) from error
        except KeyError as error:
            raise UnsafePickleError(_("broken: it asks for a value that it never had")) from error
        if self.marks or len(self.stack) != 1:
            raise UnsafePickleError(_("broken: it does not end with one value"))
        return self.stack[0]

    def _bytes(self, place: int, length: int) -> bytes:
        if length > len(self.data) - place:
            raise UnsafePickleError(_("cut off"))
        return self.data[place : place + length]

    def _integer(self, place: int, length: int) -> int:
        if length > _MOST_INTEGER_BYTES:
            raise UnsafePickleError(_("an integer of {length} bytes").format(length=f"{length:,}"))
        self.stack.append(int.from_bytes(self._bytes(place, length), "little", signed=True))
        return place + length

    def _text(self, place: int, length: int) -> int:
        self.stack.append(self._bytes(place, length).decode("utf-8", "replace"))
        return place + length

    def _raw(self, place: int, length: int) -> int:
        self.stack.append(self._bytes(place, length))
        return place + length

    def _new(self, container: Any, place: int) -> int:
        self.containers += 1
        if self.containers > _MOST_CONTAINERS:
            raise UnsafePickleError(_("more than {most} containers").format(most=f"{_MOST_CONTAINERS:,}"))
        self.stack.append(container)
        return place

    def _to_mark(self) -> list[Any]:
        """Close the last mark and return what lay above it."""
        if not self.marks:
            raise UnsafePickleError(_("broken: a mark is missing"))
        above, self.stack = self.stack, self.marks.pop()
        return above

    def _tuple(self, items: list[Any], place: int) -> int:
        # nothing that is looked at here has containers inside tuples; without them no tuple is deep
        if any(isinstance(item, dict | list | tuple) for item in items):
            raise UnsafePickleError(_("a tuple that holds containers"))
        return self._new(tuple(items), place)

    def _put_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise UnsafePickleError(_("broken: items for what is no dictionary"))
        keys = items[::2]
        # longer integers can be chosen so that all of them fall into one place of the table
        if not all(type(key) is str or (type(key) is int and key.bit_length() < 64) for key in keys):
            raise UnsafePickleError(_("a dictionary whose keys are neither texts nor small numbers"))
        target.update(zip(keys, items[1::2], strict=True))

    def _put_values(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise UnsafePickleError(_("broken: values for what is no list"))
        target.extend(items)

    # -- instructions ---------------------------------------------------------------------------------------

    def mark(self, place: int) -> int:
        if len(self.marks) == _MOST_OPEN:
            raise UnsafePickleError(_("nested more than {most} deep").format(most=_MOST_OPEN))
        self.marks.append(self.stack)
        self.stack = []
        return place

    def empty_dict(self, place: int) -> int:
        return self._new({}, place)

    def empty_list(self, place: int) -> int:
        return self._new([], place)

    def empty_tuple(self, place: int) -> int:
        return self._new((), place)

    def some_tuple(self, place: int) -> int:
        return self._tuple(self._to_mark(), place)

    def short_tuple(self, place: int) -> int:
        count = self.data[place - 1] - 0x84
        if len(self.stack) < count:
            raise UnsafePickleError(_("broken: a tuple without its values"))
        items = self.stack[-count:]
        del self.stack[-count:]
        return self._tuple(items, place)

    def set_item(self, place: int) -> int:
        value, key = self.stack.pop(), self.stack.pop()
        self._put_items([key, value])
        return place

    def set_items(self, place: int) -> int:
        self._put_items(self._to_mark())
        return place

    def append(self, place: int) -> int:
        self._put_values([self.stack.pop()])
        return place

    def appends(self, place: int) -> int:
        self._put_values(self._to_mark())
        return place

    def none(self, place: int) -> int:
        self.stack.append(None)
        return place

    def true(self, place: int) -> int:
        self.stack.append(True)
        return place

    def false(self, place: int) -> int:
        self.stack.append(False)
        return place

    def int1(self, place: int) -> int:
        self.stack.append(self.data[place])
        return place + 1

    def int2(self, place: int) -> int:
        self.stack.append(_U16(self.data, place)[0])
        return place + 2

    def int4(self, place: int) -> int:
        self.stack.append(_I32(self.data, place)[0])
        return place + 4

    def long1(self, place: int) -> int:
        return self._integer(place + 1, self.data[place])

    def float8(self, place: int) -> int:
        self.stack.append(_FLOAT(self.data, place)[0])
        return place + 8

    def text1(self, place: int) -> int:
        return self._text(place + 1, self.data[place])

    def text4(self, place: int) -> int:
        return self._text(place + 4, _U32(self.data, place)[0])

    def text8(self, place: int) -> int:
        return self._text(place + 8, _U64(self.data, place)[0])

    def bytes1(self, place: int) -> int:
        return self._raw(place + 1, self.data[place])

    def bytes4(self, place: int) -> int:
        return self._raw(place + 4, _U32(self.data, place)[0])

    def bytes8(self, place: int) -> int:
        return self._raw(place + 8, _U64(self.data, place)[0])

    def put1(self, place: int) -> int:
        self.memo[self.data[place]] = self.stack[-1]
        return place + 1

    def put4(self, place: int) -> int:
        self.memo[_U32(self.data, place)[0]] = self.stack[-1]
        return place + 4

    def memoize(self, place: int) -> int:
        self.memo[len(self.memo)] = self.stack[-1]
        return place

    def get1(self, place: int) -> int:
        # stacks of frames are long runs of these: one turn of the loop for all of them
        data, memo, push = self.data, self.memo, self.stack.append
        push(memo[data[place]])
        place += 1
        while data[place] == _BINGET:
            push(memo[data[place + 1]])
            place += 2
        return place

    def get4(self, place: int) -> int:
        data, memo, push = self.data, self.memo, self.stack.append
        push(memo[_U32(data, place)[0]])
        place += 4
        while data[place] == _LONG_BINGET:
            push(memo[_U32(data, place + 1)[0]])
            place += 5
        return place

    def frame(self, place: int) -> int:
        return place + 8

    def refuse(self, place: int) -> int:
        code = self.data[place - 1]
        if code in _ACTIVE:
            raise UnsafePickleError(_("it would run code or build objects when loaded; nothing in it was run"))
        raise UnsafePickleError(
            _("it holds something that is no plain value (instruction 0x{code})").format(code=f"{code:02x}")
        )


_STOP = 0x2E
_KNOWN: dict[int, Callable[[_Machine, int], int]] = {
    0x28: _Machine.mark,
    0x29: _Machine.empty_tuple,
    0x42: _Machine.bytes4,
    0x43: _Machine.bytes1,
    0x47: _Machine.float8,
    0x4A: _Machine.int4,
    0x4B: _Machine.int1,
    0x4D: _Machine.int2,
    0x4E: _Machine.none,
    0x58: _Machine.text4,
    0x5D: _Machine.empty_list,
    0x61: _Machine.append,
    0x65: _Machine.appends,
    _BINGET: _Machine.get1,
    _LONG_BINGET: _Machine.get4,
    0x71: _Machine.put1,
    0x72: _Machine.put4,
    0x73: _Machine.set_item,
    0x74: _Machine.some_tuple,
    0x75: _Machine.set_items,
    0x7D: _Machine.empty_dict,
    0x85: _Machine.short_tuple,
    0x86: _Machine.short_tuple,
    0x87: _Machine.short_tuple,
    0x88: _Machine.true,
    0x89: _Machine.false,
    0x8A: _Machine.long1,
    0x8C: _Machine.text1,
    0x8D: _Machine.text8,
    0x8E: _Machine.bytes8,
    0x94: _Machine.memoize,
    0x95: _Machine.frame,
}
_OPERATIONS = [_KNOWN.get(code, _Machine.refuse) for code in range(256)]
# What runs code when pickle reads it: classes looked up, functions called, objects built or asked for.
_ACTIVE = {*b"cRbioPQ", 0x81, 0x82, 0x83, 0x84, 0x92, 0x93}
