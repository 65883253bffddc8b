"""The handler of poison_message.toml: it fails on the records of one key in five hundred."""

from wavetank import Records

POISON = 13


def handle(records: Records) -> None:
    """Fail on records with the poison key."""
    for record in records:
        if record.key == POISON:
            raise ValueError(f"cannot read record {record.offset}")
