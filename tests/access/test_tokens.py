"""Which tokens are valid for a consumer."""

from __future__ import annotations

from dispatcher.access.tokens import Scope, Token, Tokens

READ = frozenset({Scope.READ})
ONE, ALL = Token("one", frozenset({"shop"}), READ), Token("all", None, READ)


def test_the_tokens_of_a_consumer() -> None:
    tokens = Tokens([ONE, ALL])
    assert tokens.of("shop") == [ONE, ALL]
    assert tokens.of("other") == [ALL]
    tokens.replace([ONE])
    assert tokens.of("other") == []
