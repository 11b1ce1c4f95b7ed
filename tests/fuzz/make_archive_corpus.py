#!/usr/bin/env python3
"""Writes the seed corpus of archive_fuzz: one small ZIP file per branch of the reader. Usage: make_archive_corpus.py DIRECTORY"""
import io
import struct
import sys
import zipfile
from pathlib import Path

DATE = (2025, 1, 1, 0, 0, 0)


def archive(members, compression, comment=b""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        file.comment = comment
        for name, data in members.items():
            info = zipfile.ZipInfo(name, DATE)
            info.compress_type = compression
            file.writestr(info, data)
    return out.getvalue()


def wide():
    """Sizes, offset and the end record in their ZIP64 forms."""
    name, data, crc = b"m.gguf", b"tale", 0x789CF8BC
    extra = struct.pack("<HHQQQ", 1, 24, len(data), len(data), 0)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 0, 0, 0, crc, len(data), len(data), len(name), 0) + name + data
    central = struct.pack("<4s6H3I5H2I", b"PK\1\2", 45, 45, 0, 0, 0, 0, crc, 0xFFFFFFFF, 0xFFFFFFFF, len(name), len(extra), 0, 0, 0, 0,
                          0xFFFFFFFF) + name + extra
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(central), len(local))
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(local) + len(central), 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return local + central + end64 + locator + end


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    texts = {"package/__init__.py": b"", "package/m.gguf": b"GGUF" + bytes(range(256)) * 4}
    for name, data in {
        "stored": archive(texts, zipfile.ZIP_STORED),
        "deflated": archive(texts, zipfile.ZIP_DEFLATED),
        "comment": archive({"m.gguf": b"x"}, zipfile.ZIP_STORED, b"PK\5\6 is no end record here"),
        "bzip2": archive({"m.gguf": b"x" * 100}, zipfile.ZIP_BZIP2),
        "empty": archive({}, zipfile.ZIP_STORED),
        "wide": wide(),
        "cut": archive(texts, zipfile.ZIP_DEFLATED)[:-30],
    }.items():
        (directory / name).write_bytes(data)


if __name__ == "__main__":
    main()
