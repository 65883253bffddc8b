"""Texts of exceptions."""

import pytest

from wavetank.model.errors import UnknownNameError


@pytest.mark.parametrize(
    ("known", "hint"),
    [
        (["range", "sticky"], "did you mean 'range'?"),
        (["left", "up"], "there is 'left', 'up'"),
        ([f"z{i:02}" for i in range(12)], "'z09' and more"),
        ([], "there is no assignor yet"),
    ],
)
def test_an_unknown_name_suggests_the_most_similar_name_or_lists_the_known_ones(
    known: list[str], hint: str
) -> None:
    text = str(UnknownNameError("assignor", "rnage", known))
    assert text.startswith("unknown assignor 'rnage': ")
    assert text.endswith(hint)
