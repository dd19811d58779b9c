"""Object files of LLVM in memory, ready to run.

llvmlite has a linker, too, but its library takes 50 MB of memory, and machine code that is on disk
needs nothing else of it. What LLVM writes for processors of AMD and Intel refers to addresses of 64
bits alone; other object files are refused.
"""

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

_HEADER, _SECTION = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL, _PLACE = struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_MAGIC, _X86_64 = b"\x7fELF\x02\x01", 62
_SYMBOLS, _PLACES, _NO_BITS, _OLD_PLACES = 2, 4, 8, 9  # kinds of sections
_UNWINDING = 0x70000001  # of exceptions, of which there are none
_IN_MEMORY = 2  # a flag
_ADDRESS = 1  # the kind of a place that gets an address of 64 bits
_LINE = 64  # bytes: sections begin with a line of the cache


class _ElfSection(NamedTuple):
    """A section as its header has it; ``link`` and ``info``: numbers of others."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class _ElfObject:
    """An object file, and where its sections go."""

    def __init__(self, content: bytes) -> None:
        header = _HEADER.unpack_from(content)
        if header[0][: len(_MAGIC)] != _MAGIC or header[2] != _X86_64:
            raise ValueError("an object file of another kind")
        self.content, first, count = content, header[6], header[12]
        end = first + count * _SECTION.size
        self.sections = [_ElfSection(*each) for each in _SECTION.iter_unpack(content[first:end])]
        self.starts: dict[int, int] = {}  # of sections that are in memory

    def place(self, begin: int) -> int:
        """Choose places from an offset on, and return where they end."""
        for number, section in enumerate(self.sections):
            if section.flags & _IN_MEMORY and section.kind not in (_UNWINDING, _PLACES):
                if section.kind == _OLD_PLACES or section.align > _LINE:
                    raise ValueError("a section of another kind")
                begin = -(-begin // _LINE) * _LINE
                self.starts[number] = begin
                begin += section.size
        return begin

    def filled(self) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of sections, and where they go."""
        for number, start in self.starts.items():
            section = self.sections[number]
            if section.kind != _NO_BITS:
                yield start, self.content[section.offset :][: section.size]

    def symbols(self, base: int) -> list[tuple[str, bool, int | None]]:
        """Return the name of each symbol, True if it is global, and its address.

        That is None where the object file does not have it. ``base``: the address of all memory.
        """
        (table,) = (each for each in self.sections if each.kind == _SYMBOLS)
        names, found = self.sections[table.link].offset, []
        for name, info, _, section, value, _ in _SYMBOL.iter_unpack(self._bytes(table)):
            begin = names + name
            text = self.content[begin : self.content.index(b"\0", begin)].decode()
            start = self.starts.get(section)
            found.append((text, info >> 4 > 0, None if start is None else base + start + value))
        return found

    def references(self) -> Iterator[tuple[int, int, int]]:
        """Yield places, numbers of the symbols whose addresses they get, and what is added."""
        for section in self.sections:
            if section.kind == _PLACES and section.info in self.starts:
                for offset, info, addend in _PLACE.iter_unpack(self._bytes(section)):
                    if info & 0xFFFFFFFF != _ADDRESS:
                        raise ValueError("a reference of another kind")
                    yield self.starts[section.info] + offset, info >> 32, addend

    def _bytes(self, section: _ElfSection) -> bytes:
        return self.content[section.offset :][: section.size]


def link(
    contents: Sequence[bytes], outside: Callable[[str], int]
) -> tuple[dict[str, int], mmap.mmap]:
    """Return the addresses of the functions of object files, in memory that has to be kept.

    ``outside``: returns the address of a function that no object file has.

    Raises ValueError for object files that are of another kind, OSError where memory must not be
    run, and what ``outside`` raises.
    """
    objects, size = [_ElfObject(each) for each in contents], 0
    for each in objects:
        size = each.place(size)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, size, flags, mmap.PROT_READ | mmap.PROT_WRITE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    tables = [each.symbols(base) for each in objects]
    addresses = {
        name: address
        for name, is_global, address in chain.from_iterable(tables)
        if is_global and address is not None
    }
    for each, symbols in zip(objects, tables, strict=True):
        for start, content in each.filled():
            memory[start : start + len(content)] = content
        for place, number, addend in each.references():
            name, _, address = symbols[number]
            if address is None:
                address = addresses.get(name) or outside(name)
            struct.pack_into("<q", memory, place, address + addend)
    libc = ctypes.CDLL(None, use_errno=True)
    where = ctypes.c_void_p(base), ctypes.c_size_t(size)
    if libc.mprotect(*where, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "memory must not be run")
    return addresses, memory
