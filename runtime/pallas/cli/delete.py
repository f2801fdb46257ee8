"""`pallas delete`: things that go."""

from typing import Annotated

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, complete_words, reach_of


def delete(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND NAME...",
            help="agent, llm, secret, project or thread, and which.",
            autocompletion=complete_words,
        ),
    ],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Delete things; on a terminal it asks first.

    An LLM or a secret that something uses is not deleted: what uses it is named. An agent's threads go with
    it, the agents of a project stay.

    \b
    pallas delete agent reviewer
    pallas delete llm/qwen3-thinking secret/litellm-key --yes
    """
    from pallas.cli.resources.delete_resources import delete as delete_things

    raise typer.Exit(delete_things(words, yes, reach_of(context, folder, url, token)))
