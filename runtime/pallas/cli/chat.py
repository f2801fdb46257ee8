"""`pallas chat`: one message, or a conversation at a prompt, with an agent."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .chat_completion import agents, threads
from .resources.shared_options import ChatTokenOption, ChatUrlOption, ProjectOption


def chat(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(metavar="AGENT", autocompletion=agents)],
    message: Annotated[
        str | None,
        typer.Option(
            "--message",
            "-m",
            metavar="TEXT",
            help="Send this message, print the answer and exit; - reads it from stdin, as a pipe does.",
        ),
    ] = None,
    image: Annotated[
        list[Path] | None,
        typer.Option("--image", metavar="FILE", help="Send this picture with the message; repeatable."),
    ] = None,
    thread: Annotated[
        str,
        typer.Option(
            "--thread", metavar="ID", help="Continue an earlier conversation.", autocompletion=threads
        ),
    ] = "",
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            show_default=False,
            help="Print text while it is written (the default), or all of it at the end.",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the answer as one JSON document; with --stream one line per chunk."
        ),
    ] = False,
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="TEXT", help="Replace the agent's instruction."),
    ] = None,
    system_file: Annotated[
        Path | None,
        typer.Option("--system-file", metavar="FILE", help="The same, from a file."),
    ] = None,
    system_append: Annotated[
        str | None,
        typer.Option("--system-append", metavar="TEXT", help="Add this at the end of the instruction."),
    ] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", metavar="N", help="0 to 2.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="N", help="0 to 1.")] = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", metavar="N", help="Choose among the N most likely words; Anthropic only."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", metavar="N", help="The most tokens of an answer."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="The same seed gives the same answer, mostly."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="The answer ends before this text; up to four."),
    ] = None,
    allow_tool: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-tool",
            metavar="NAME",
            help="Allow only this tool (server__tool); repeatable.",
        ),
    ] = None,
    extra: Annotated[
        list[str] | None,
        typer.Option(
            "--extra",
            metavar="NAME=VALUE",
            help="A parameter for the provider, sent unchanged; numbers and JSON are parsed.",
        ),
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any parameter, as /set takes it."),
    ] = None,
    url: ChatUrlOption = "",
    token: ChatTokenOption = "",
    project: ProjectOption = None,
) -> None:
    """Talk to an agent, at a prompt or once with -m. Starts a fleet for the call if none runs.

    AGENT may be a file: a card (.md) or a module (.py).
    """
    given = context.obj if isinstance(context.obj, Path) else Path()
    params = {
        "systemAppend": system_append,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "max_tokens": max_tokens,
        "seed": seed,
        "stop": stop or None,
        "tools_allowlist": allow_tool or None,
    }
    from .chat_client.chat_command import run
    from .chat_client.chat_options import ChatOptions, images_of, message_of, params_of, slips, system_of
    from .chat_client.exit_status import USAGE, ChatExit
    from .single_agent import NotSingle, is_agent_file, single

    root = project or given
    try:
        if is_agent_file(agent):
            root, agent = single(Path(agent))
        params["systemOverride"] = system_of(system, system_file)
        options = ChatOptions(
            agent=agent,
            root=root.absolute(),
            params=params_of(params, extra or (), more or ()),
            images=images_of(image or ()),
            message=message_of(message, _is_terminal(sys.stdin)),
            thread=thread.strip(),
            stream=stream,
            as_json=as_json,
            url=url,
            token=token,
        )
        if options.as_json and options.message is None:
            raise ChatExit(USAGE, "--json needs a single message: give it with -m, or pipe it in")
    except ChatExit as left:
        print(f"pallas chat: {left.message}", file=sys.stderr)
        raise typer.Exit(left.status) from None
    except NotSingle as error:
        print(f"pallas chat: {error}", file=sys.stderr)
        raise typer.Exit(USAGE) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    for line in slips(more or ()):
        print(f"warning: {line}", file=sys.stderr)
    raise typer.Exit(run(options))


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # It is closed.
        return False
