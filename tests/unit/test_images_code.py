"""Copying one block of code out of a message."""

from pallas_tui.widgets.chat.message_parts import BlockWalk, CodeBlock, code_blocks

TEXT = """Here:

```python
print("[red]one[/]")
```

and

~~~
two
   lines
~~~

    indented

```

```
"""


def test_blocks_are_found_in_order_with_their_language() -> None:
    assert code_blocks(TEXT) == (
        CodeBlock("python", 'print("[red]one[/]")'),
        CodeBlock("", "two\n   lines"),
        CodeBlock("", "indented"),
    )
    assert code_blocks("no code `inline` here") == ()


def test_a_block_without_an_end_is_one() -> None:
    assert code_blocks("```sh\nls") == (CodeBlock("sh", "ls"),)


def test_a_language_from_outside_is_harmless() -> None:
    (block,) = code_blocks("```py\x1b[2J more\nx\n```")
    assert block.language == "py␛[2J"


def test_the_key_goes_round_and_begins_anew_with_another_message() -> None:
    walk = BlockWalk()
    assert [walk.next(1, 3) for _ in range(4)] == [0, 1, 2, 0]
    assert walk.next(2, 2) == 0
    assert walk.next(1, 3) == 0
