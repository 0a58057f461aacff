"""The files of an attempt as the supervisor writes them: whole or not at all, closed to others.

Owns exclusive creation (the claim, the stop file), durable replacement, and a JSON writer that
costs no import. Shared by the supervisor and the host; knows nothing of processes.
"""

from __future__ import annotations

import os


def write_claim(folder: str, record: dict[str, object]) -> str:
    """Write what is to be a claim, under a name of its own, which is returned: nobody has the attempt by that."""
    mine = f"{folder}/.claim.{os.urandom(6).hex()}"
    write_file(mine, to_json(record).encode())
    return mine


def take_claim(
    folder: str, record: dict[str, object], *, written: str | None = None, kept_as: str | None = None
) -> bool:
    """Take the attempt by exclusive creation of ``claim``, complete from its first moment.

    written  the record's file, if there is one already.
    kept_as  another name under which the same record is to be found.
    """
    mine = write_claim(folder, record) if written is None else written
    try:
        os.link(mine, f"{folder}/claim")
    except FileExistsError:
        os.unlink(mine)
        return False
    except OSError:
        os.unlink(mine)
        raise
    if kept_as is None:
        os.unlink(mine)
    else:
        os.rename(mine, f"{folder}/{kept_as}")
    return True


def leave_stop_file(folder: str, text: str) -> None:
    """Tell the job why it is being ended; the first reason stands."""
    mine = f"{folder}/.stop.{os.urandom(6).hex()}"
    write_file(mine, text.encode())
    try:
        os.link(mine, f"{folder}/stop")
    except FileExistsError:
        return
    finally:
        os.unlink(mine)


def read_stop_file(folder: str, grace_s: float) -> tuple[str, float]:
    """The reason and the grace. The job may have written there too: what makes no sense is left out."""
    descriptor = os.open(f"{folder}/stop", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        lines = os.read(descriptor, 1000).decode(errors="replace").split("\n")
    finally:
        os.close(descriptor)
    words = lines[1].split() if len(lines) > 1 else []
    given = float(words[1]) if words[:1] == ["grace"] and len(words) == 2 else grace_s
    return lines[0][:100], given if 0 <= given < 1e9 else grace_s


def make_folder(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return


def write_file(path: str, content: bytes, *, durable: bool = False) -> None:
    # A pipe that somebody has put there is refused at once, not waited for.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def durable_replace(folder: str, name: str, content: bytes) -> None:
    """Put a file in place whole or not at all, also across a loss of power."""
    write_file(f"{folder}/.{name}", content, durable=True)
    os.rename(f"{folder}/.{name}", f"{folder}/{name}")
    _sync(folder)


def put_file(folder: str, name: str, content: bytes) -> None:
    """Put a file in place whole or not at all; a loss of power may still empty it."""
    write_file(f"{folder}/.{name}", content)
    os.rename(f"{folder}/.{name}", f"{folder}/{name}")


def make_durable(folder: str, name: str) -> None:
    """From the return of this, not even a loss of power takes the file."""
    _sync(f"{folder}/{name}")
    _sync(folder)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # as above
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def to_json(value: object) -> str:
    """JSON of plain values, in ASCII; importing ``json`` would cost more than all the rest."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_json(str(key))}: {to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(to_json, value)) + "]"
    if (text := str(value)).isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(escaped, text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))) + '"'


def escaped(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return "\\" + character
    if 32 <= code < 127:
        return character
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
