import pytest

from pallas.model import Fault
from pallas.model.fingerprint import fingerprint
from pallas.model.redaction import redact_text
from pallas_tui.chat.chat_principal import NOBODY, from_environment, names_of, typed

TOKEN = "tok-5f0c-very-private-000001"


def test_a_token_is_a_fingerprint_to_everyone() -> None:
    principal = from_environment("$DESK_TOKEN", {"DESK_TOKEN": f"  {TOKEN}\n"})
    try:
        assert principal.token == TOKEN
        assert principal.label == f"$DESK_TOKEN {fingerprint(TOKEN)[:8]}"
        assert principal.fingerprint == fingerprint(TOKEN)
        for shown in (repr(principal), str(principal), principal.label):
            assert TOKEN not in shown
    finally:
        principal.release()
    assert NOBODY.label == "nobody"
    assert NOBODY.fingerprint == ""


def test_while_it_is_held_the_log_masks_it_and_afterwards_it_is_forgotten() -> None:
    first = typed(TOKEN)
    second = first.lend()
    first.release()
    assert TOKEN not in redact_text(f"it said {TOKEN} here")
    second.release()
    assert TOKEN in redact_text(f"it said {TOKEN} here")


@pytest.mark.parametrize("text", [f"Bearer {TOKEN}", f"bearer   {TOKEN} ", TOKEN])
def test_a_pasted_header_is_taken_for_its_token(text: str) -> None:
    principal = typed(text)
    principal.release()
    assert principal.token == TOKEN


@pytest.mark.parametrize(
    ("name", "environ", "words"),
    [
        ("$NOT_THERE", {}, "There is no variable NOT_THERE"),
        ("eyJhbGciOi.x.y", {}, "never the token itself"),
        ("$EMPTY", {"EMPTY": "  "}, "The token in $EMPTY is empty"),
        ("$TWO", {"TWO": "one two"}, "in one piece"),
        ("$LONG", {"LONG": "x" * 20_000}, "at most 16384 characters"),
        ("$LINES", {"LINES": "a\r\nHost: evil"}, "in one piece"),
    ],
)
def test_what_is_no_token_is_refused_without_repeating_it(
    name: str, environ: dict[str, str], words: str
) -> None:
    with pytest.raises(Fault) as refused:
        from_environment(name, environ)
    assert words in refused.value.message
    for value in environ.values():
        assert not value.strip() or value not in refused.value.message


def test_only_names_are_offered() -> None:
    environ = {"DESK_TOKEN": TOKEN, "HOME": "/root", "MY_JWT": "a", "X-TOKEN": "b"}
    assert names_of(environ) == ("$DESK_TOKEN", "$MY_JWT")
