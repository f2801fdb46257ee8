import json
from pathlib import Path

import pytest

from pallas.model import Fault
from pallas_tui.chat.saved_prompts import MAX_PROMPTS, MAX_TEXT, PromptBook, SavedPrompt
from pallas_tui.json_file import JsonFile


def test_a_prompt_is_kept_for_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "workbench.prompts.json"
    book = PromptBook(JsonFile(file))
    assert book.prompts == ()
    assert not book.save("invoice\nbug", "Which customers\nwere hit?")
    assert not book.save("Able", "first")
    assert book.save("Able", "second")
    again = PromptBook(JsonFile(file))
    assert again.prompts == (
        SavedPrompt("Able", "second"),
        SavedPrompt("invoice", "Which customers\nwere hit?"),
    )
    assert again.delete("Able")
    assert not again.delete("Able")
    assert [each.name for each in PromptBook(JsonFile(file)).prompts] == ["invoice"]


def test_a_file_that_is_broken_is_told_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text("{nonsense")
    book = PromptBook(JsonFile(file))
    assert book.prompts == ()
    assert "p.json: cannot be read" in book.problem
    with pytest.raises(Fault, match="Nothing was saved"):
        book.save("a", "b")
    assert file.read_text() == "{nonsense"


def test_what_is_in_the_file_is_made_safe(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"prompts": {"a\x1b[31m": "b\x1b]52;c;x\x07", "n": 5}}))
    book = PromptBook(JsonFile(file))
    (prompt,) = book.prompts
    assert "\x1b" not in prompt.name + prompt.text
    assert "1 entries are not prompts" in book.problem


@pytest.mark.parametrize(("name", "text"), [("", "x"), ("x", "  "), ("x", "y" * (MAX_TEXT + 1))])
def test_a_prompt_has_a_name_a_text_and_an_end(name: str, text: str) -> None:
    with pytest.raises(Fault):
        PromptBook().save(name, text)


def test_the_list_has_an_end() -> None:
    book = PromptBook()
    for number in range(MAX_PROMPTS):
        book.save(f"p{number}", "text")
    with pytest.raises(Fault, match="delete one"):
        book.save("one more", "text")
    assert book.save("p0", "changed")
