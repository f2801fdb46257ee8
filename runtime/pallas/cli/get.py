"""`pallas get` and `pallas describe`: things as a table, as documents, or in full."""

from typing import Annotated

import typer

from pallas.cli.resources.resource_kinds import KINDS
from pallas.cli.resources.shared_options import (
    FolderOption,
    LimitOption,
    OutputOption,
    TokenOption,
    UrlOption,
    complete_agent,
    complete_project,
    complete_words,
    reach_of,
)


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


_KINDS = _listed([each.plural for each in KINDS.values() if each.has_names])
LISTS = _listed([each.plural for each in KINDS.values()])


def get(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(metavar="KIND [NAME...]", help=f"{LISTS}.", autocompletion=complete_words),
    ],
    output: OutputOption = "table",
    project_name: Annotated[
        str,
        typer.Option(
            "--project-name",
            metavar="NAME",
            show_default=False,
            help="For agents: only those of this project.",
            autocompletion=complete_project,
        ),
    ] = "",
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            metavar="NAME",
            show_default=False,
            help="For threads and runs: only those of this agent.",
            autocompletion=complete_agent,
        ),
    ] = "",
    thread: Annotated[
        str,
        typer.Option(
            "--thread",
            metavar="ID",
            show_default=False,
            help="For runs and questions: only those of this thread.",
        ),
    ] = "",
    status: Annotated[
        str,
        typer.Option(
            "--status",
            metavar="STATUS",
            show_default=False,
            help="For runs: running, ok, error, cancelled. For questions: open, answered, expired, "
            "withdrawn, all; open without it.",
        ),
    ] = "",
    search: Annotated[
        str,
        typer.Option(
            "--search",
            metavar="TEXT",
            show_default=False,
            help="For threads: only those with these words in a question, an answer or the title.",
        ),
    ] = "",
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="WHAT",
            help="For costs: the sums of each agent, caller, thread, version or model.",
        ),
    ] = "agent",
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            show_default=False,
            help="For costs: only runs since 24h, 7d or 2026-03-12.",
        ),
    ] = "",
    limit: LimitOption = 0,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """List resources, or show them as YAML or JSON.

    \b
    pallas get agents
    pallas get agent reviewer -o yaml > reviewer.yaml
    pallas get llm qwen3-thinking -o json
    pallas get threads --agent reviewer --limit 5
    pallas get threads --search "rate limit"  threads with these words
    pallas get thread ID                      its messages, readable
    pallas get runs --status error
    pallas get questions                      what waits for a person
    pallas get audit                          questions, answers and calls
    pallas get replicas                       the fleets on the same database
    pallas get limits                         what was used today
    pallas get storage                        what the ledger holds
    pallas get costs --by model --since 7d    what runs cost, highest first
    """
    reach = reach_of(context, folder, url, token)
    if [word.strip().lower() for word in words] in (["cost"], ["costs"]):
        from pallas.cli.resources.cost_list import get_costs

        raise typer.Exit(get_costs(by, since, output, reach))
    from pallas.cli.resources.resource_lists import ListOptions
    from pallas.cli.resources.resource_lists import get as show

    options = ListOptions(tuple(words), output, project_name, agent, thread, status, search, limit)
    raise typer.Exit(show(options, reach))


def describe(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(metavar="KIND NAME...", help=f"{_KINDS}.", autocompletion=complete_words),
    ],
    output: Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="text or json.")] = "text",
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Show all about a resource: its fields, its state, and what uses it.

    \b
    pallas describe agent reviewer
    pallas describe llm/qwen3-thinking secret/litellm-key
    pallas describe run ID                  requests to models, and answers
    pallas describe run ID -o json          with whole requests and answers
    """
    from pallas.cli.resources.resource_details import describe as show

    raise typer.Exit(show(words, reach_of(context, folder, url, token), output))
