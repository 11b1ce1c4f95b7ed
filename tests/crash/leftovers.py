"""Where a prompt or an output could be found after its job has ended."""

import base64
import contextlib
import ctypes
import ctypes.util
import dataclasses
import json
import pathlib
import shutil
import sqlite3
import struct
import tempfile

PIECE_CHARS = 24
KEY_BYTES, TAG_BYTES = 32, 16
STRIDE = 8


def text_forms(text):
    """The byte strings one text could be spelled as."""
    raw = text.encode()
    forms = {raw, text.encode("utf-16-le"), text.encode("utf-16-be")}
    forms |= {raw.hex().encode(), raw.hex().upper().encode()}
    for shift in range(3):  # base64 of a longer text spells this one in one of three ways; its edges mix with neighbours
        padded = b"\0" * shift + raw
        encoded = base64.b64encode(padded[: len(padded) // 3 * 3])[4 if shift else 0 :]
        forms |= {encoded, encoded.replace(b"+", b"-").replace(b"/", b"_")}
    forms |= {json.dumps(text).encode()[1:-1], json.dumps(text, ensure_ascii=False).encode()[1:-1]}
    forms.add("".join(f"\\u{unit:04x}" for unit in struct.unpack(f"<{len(text.encode('utf-16-le')) // 2}H", text.encode("utf-16-le"))).encode())
    forms.add("".join(f"%{byte:02X}" for byte in raw).encode())
    return sorted(forms)


def token_forms(tokens):
    """The same for a run of token ids: as text, and as the integers of an array."""
    forms = {separator.join(map(str, tokens)).encode() for separator in (",", ", ", " ", "\n")}
    forms |= {struct.pack(f"{order}{len(tokens)}{width}", *tokens) for order in "<>" for width in "Hiq"}
    return sorted(forms)


def pieces(text):
    """Overlapping pieces of a text such that each part of it longer than two pieces holds one."""
    if len(text) < PIECE_CHARS:
        return []
    return [text[at : at + PIECE_CHARS] for at in range(0, len(text) - PIECE_CHARS + 1, PIECE_CHARS)]


def files_under(directories):
    return sorted({path for directory in directories for path in pathlib.Path(directory).rglob("*") if path.is_file()})


def search(directories, forms):
    """(file, spelling) of everything that is found.

    A spelling of 15 bytes or more holds some 8 bytes that begin at a multiple of 8 wherever it lies, so a look at every 8th
    place of a file names the few spellings that are worth a full search.
    """
    index, short = {}, [form for form in forms if len(form) < 2 * STRIDE - 1]
    for form in forms:
        for at in range(len(form) - STRIDE + 1):
            if any(window := form[at : at + STRIDE]):  # zeros are everywhere, and no spelling has 15 in a row
                index.setdefault(window, set()).add(form)
    found = []
    for path in files_under(directories):
        with contextlib.suppress(FileNotFoundError):
            data = path.read_bytes()
            likely = set(short)
            for at in range(0, len(data), STRIDE):
                if (hit := index.get(data[at : at + STRIDE])) is not None:
                    likely |= hit
            found += [(path, form) for form in sorted(likely) if form in data]
    return found


@dataclasses.dataclass(frozen=True)
class Sealed:
    """A payload as it lay in the database while its job lived, with the key that opened it then."""

    job_id: str
    nonce: bytes
    ciphertext: bytes
    key: bytes

    def opens_with(self, key):
        return open_sealed(key, self.nonce, self.ciphertext, self.job_id.encode())


def live_payloads(state_dir):
    """What a copy of the state directory gives away: every job that has not ended. Its daemon is dead or stands still."""
    keys = (state_dir / "payload.keys").read_bytes()
    with tempfile.TemporaryDirectory() as copy:
        for name in ("orchestrator.db", "orchestrator.db-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(state_dir / name, copy)
        connection = sqlite3.connect(f"{copy}/orchestrator.db")
        try:
            rows = connection.execute("SELECT j.job_id, p.key_slot, p.nonce, p.ciphertext FROM job_payloads p JOIN jobs j USING (arrival)").fetchall()
        finally:
            connection.close()
    return [Sealed(job_id, nonce, text, keys[slot * KEY_BYTES : (slot + 1) * KEY_BYTES]) for job_id, slot, nonce, text in rows]


def windows(data):
    """Every key that 32 neighbouring bytes could be."""
    return {data[at : at + KEY_BYTES] for at in range(max(0, len(data) - KEY_BYTES + 1))}


def openable(sealed, key_file):
    """Those of `sealed` that some window of the key file opens."""
    keys = windows(key_file.read_bytes())
    return [one for one in sealed if any(one.opens_with(key) for key in keys)]


def _crypto():
    library = ctypes.CDLL(ctypes.util.find_library("crypto"))
    library.EVP_CIPHER_CTX_new.restype = library.EVP_aes_256_gcm.restype = ctypes.c_void_p
    return library


CRYPTO = _crypto()
GCM_SET_TAG = 0x11


def open_sealed(key, nonce, ciphertext, associated):
    """AES-256-GCM with OpenSSL, apart from the daemon's own code: the plaintext, or None."""
    text, tag = ciphertext[:-TAG_BYTES], ciphertext[-TAG_BYTES:]
    context = ctypes.c_void_p(CRYPTO.EVP_CIPHER_CTX_new())
    out, n = ctypes.create_string_buffer(len(text) or 1), ctypes.c_int()
    try:
        CRYPTO.EVP_DecryptInit_ex(context, ctypes.c_void_p(CRYPTO.EVP_aes_256_gcm()), None, key, nonce)
        CRYPTO.EVP_DecryptUpdate(context, None, ctypes.byref(n), associated, len(associated))
        CRYPTO.EVP_DecryptUpdate(context, out, ctypes.byref(n), text, len(text))
        CRYPTO.EVP_CIPHER_CTX_ctrl(context, GCM_SET_TAG, TAG_BYTES, tag)
        return out.raw[: len(text)] if CRYPTO.EVP_DecryptFinal_ex(context, out, ctypes.byref(n)) == 1 else None
    finally:
        CRYPTO.EVP_CIPHER_CTX_free(context)
