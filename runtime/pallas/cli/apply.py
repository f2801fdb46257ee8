"""`pallas apply`: create and change things as documents describe them."""

from typing import Annotated

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, reach_of


def apply(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE|DIR|-",
            show_default=False,
            help="YAML or JSON, several documents with --- between; a folder; - for stdin. Repeatable.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and say what would be done; change nothing.")
    ] = False,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Create and change agents, LLMs, secrets and projects from YAML or JSON documents.

    All documents are checked first: if there is a mistake, each is reported with its line and nothing is
    changed. The order of documents does not matter, and keys that they leave out stay as they are.

    \b
    pallas apply -f team.yaml
    pallas apply -f llms/ -f agents/ --dry-run
    pallas get agent reviewer -o yaml | pallas apply -f -

    \b
    apiVersion: pallas/v1
    kind: agent
    metadata: {name: deployer}
    spec:
      description: "I help you deploy code"
      llm: qwen3-thinking
      systemPrompt: |
        You are a deployment assistant.
      defaultParams: {temperature: 0.2, max_tokens: 4096}
    """
    from pallas.cli.resources.apply_documents import apply as apply_documents

    raise typer.Exit(apply_documents(files or [], dry_run, reach_of(context, folder, url, token)))
