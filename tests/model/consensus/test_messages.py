"""Messages and effects of Raft: frozen, and every field documented."""

import ast
import inspect
import typing

import attrs
import pytest

from wavetank.model.consensus import effects, messages

CLASSES = [
    *typing.get_args(messages.RaftMessage), messages.RaftEntry, messages.RaftSnapshot,
    effects.Ready, effects.Persist, effects.StoredState, effects.ReadReady, effects.Proposal,
    effects.RaftSettings,
]  # fmt: skip


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_class_is_frozen_and_each_field_has_a_docstring(cls):
    assert attrs.inspect(cls).is_frozen
    body = ast.parse(inspect.getsource(cls)).body[0].body
    for line, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(line, ast.AnnAssign):
            assert isinstance(following, ast.Expr), ast.unparse(line)


@pytest.mark.parametrize("cls", typing.get_args(messages.RaftMessage), ids=lambda c: c.__name__)
def test_a_message_starts_with_its_sender_its_receiver_and_a_term(cls):
    assert [field.name for field in attrs.fields(cls)][:3] == ["sender", "to", "term"]
