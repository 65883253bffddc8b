"""Topics and their replicas."""

import pytest

from wavetank.model.errors import BadValueError
from wavetank.model.topics import Topic


@pytest.mark.parametrize("name", ["replication_factor", "min_insync_replicas"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_a_number_of_replicas_is_a_whole_number_from_one(name: str, value: object) -> None:
    with pytest.raises(BadValueError) as caught:
        Topic("orders", 1, **{name: value})
    expected = f"{name} = {value!r}: expected a whole number of 1 or more"
    assert str(caught.value) == f"topic 'orders': {expected}"


def test_more_replicas_may_have_to_be_in_sync_than_there_are() -> None:
    """Kafka allows it, too."""
    assert Topic("orders", 1, min_insync_replicas=2).replication_factor == 1
