"""Valid bytes made invalid, for tests of everything that reads from the network."""

import random


def mutated(valid: bytes, chance: random.Random) -> bytes:
    """`valid` with one to four bytes changed, taken out or put in."""
    data = bytearray(valid)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = bytes((chance.randrange(256),))
            case 1:
                del data[at : at + chance.randint(1, 8)]
            case 2:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
            case _:
                data[at : at + 1] = bytes((data[at] ^ 1 << chance.randrange(8),)) if at < len(data) else b""
    return bytes(data)
