"""`pallas create`: create one thing from command-line options."""

from pathlib import Path
from typing import Annotated

import typer

from pallas.cli.command_help import CommandGroup
from pallas.cli.resources.shared_options import (
    ShortFolderOption,
    TokenOption,
    UrlOption,
    complete_llm,
    complete_project,
    reach_of,
)

creations = typer.Typer(cls=CommandGroup, rich_markup_mode=None, no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME")]
Description = Annotated[
    str,
    typer.Option("--description", metavar="TEXT", show_default=False, help="A description of its purpose."),
]
Temperature = Annotated[
    float | None, typer.Option("--default-temperature", metavar="X", show_default=False, help="0 to 2.")
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--default-max-tokens", metavar="N", show_default=False, help="The most tokens of an answer."
    ),
]
TopP = Annotated[
    float | None, typer.Option("--default-top-p", metavar="X", show_default=False, help="0 to 1.")
]
TopK = Annotated[
    int | None,
    typer.Option(
        "--default-top-k",
        metavar="N",
        show_default=False,
        help="Choose among the N most likely words; Anthropic only.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--default-seed", metavar="N", show_default=False, help="The same seed gives the same answer, mostly."
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--default-stop",
        metavar="TEXT",
        show_default=False,
        help="The answer ends before this text; up to four.",
    ),
]
Extra = Annotated[
    list[str] | None,
    typer.Option(
        "--default-extra",
        metavar="K=V",
        show_default=False,
        help="A parameter for the provider, sent unchanged; repeatable.",
    ),
]
ParamsFile = Annotated[
    Path | None,
    typer.Option(
        "--default-params-file", metavar="FILE", show_default=False, help="Parameters as YAML or JSON."
    ),
]


MaxOutput = Annotated[
    int | None,
    typer.Option(
        "--max-output-tokens",
        metavar="N",
        show_default=False,
        help="The most tokens that the model can write in one answer.",
    ),
]
MaxIterations = Annotated[
    int | None,
    typer.Option("--max-iterations", metavar="N", show_default=False, help="The most steps of a run."),
]
LoopRepeats = Annotated[
    int | None,
    typer.Option(
        "--loop-repeat-threshold",
        metavar="N",
        show_default=False,
        help="A run ends after this many equal calls with equal results; 0 is off.",
    ),
]


@creations.command("secret")
def create_secret(
    context: typer.Context,
    name: Name,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="KEY=VALUE",
            show_default=False,
            help="KEY=@file reads a file, KEY=- stdin, to keep it out of your shell's history. Repeatable.",
        ),
    ] = None,
    folder: ShortFolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Create a secret: values that are never shown again.

    \b
    pallas create secret litellm-key --data "API_KEY=${LITELLM_TOKEN}"
    pallas create secret litellm-key --data API_KEY=-           asks for it
    pallas create secret tls --data CERT=@cert.pem --data KEY=@key.pem
    """
    from pallas.cli.resources.create_resources import create_secret as make

    raise typer.Exit(make(name, data or [], reach_of(context, folder, url, token)))


@creations.command("llm")
def create_llm(
    context: typer.Context,
    name: Name,
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="The provider: openai, anthropic and others; generic for vLLM, Ollama and other servers "
            "that speak OpenAI's chat completions.",
        ),
    ],
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="Its name at the provider.")],
    address: Annotated[
        str,
        typer.Option(
            "--url",
            metavar="URL",
            show_default=False,
            help="The endpoint, if it is not the provider's own.",
        ),
    ] = "",
    api_key_ref: Annotated[
        str,
        typer.Option(
            "--api-key-ref", metavar="SECRET/KEY", show_default=False, help="The secret that has its key."
        ),
    ] = "",
    description: Description = "",
    probe: Annotated[
        bool, typer.Option("--probe/--no-probe", help="Check the key with the provider.")
    ] = True,
    max_output: MaxOutput = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    top_p: TopP = None,
    top_k: TopK = None,
    seed: Seed = None,
    stop: Stop = None,
    extra: Extra = None,
    params_file: ParamsFile = None,
    folder: ShortFolderOption = None,
    fleet: Annotated[
        str,
        typer.Option(
            "--fleet-url",
            metavar="URL",
            show_default=False,
            help="The registry of another fleet: --url of the other commands.",
        ),
    ] = "",
    token: TokenOption = "",
) -> None:
    """Create an LLM: a model at a provider, with its key.

    \b
    pallas create llm qwen3-thinking --type openai --model qwen3-thinking \\
      --url http://litellm.example.com:4000/v1 --api-key-ref litellm-key/API_KEY
    """
    from pallas.cli.resources.create_resources import Defaults
    from pallas.cli.resources.create_resources import create_llm as make

    spec = {
        "type": kind,
        "model": model,
        "url": address,
        "apiKeyRef": api_key_ref,
        "description": description,
        "maxOutputTokens": max_output,
    }
    defaults = Defaults(
        temperature, max_tokens, top_p, top_k, seed, tuple(stop or ()), tuple(extra or ()), params_file
    )
    raise typer.Exit(make(name, spec, defaults, probe, reach_of(context, folder, fleet, token)))


@creations.command("agent")
def create_agent(
    context: typer.Context,
    name: Name,
    llm: Annotated[
        str,
        typer.Option(
            "--llm",
            metavar="NAME",
            show_default=False,
            help="Its LLM (default: the project's model).",
            autocompletion=complete_llm,
        ),
    ] = "",
    description: Description = "",
    system_prompt: Annotated[
        str, typer.Option("--system-prompt", metavar="TEXT", show_default=False, help="Its instruction.")
    ] = "",
    system_prompt_file: Annotated[
        Path | None,
        typer.Option(
            "--system-prompt-file",
            metavar="FILE",
            show_default=False,
            help="The same from a file; - for stdin.",
        ),
    ] = None,
    project: Annotated[
        str,
        typer.Option(
            "--project",
            metavar="NAME",
            show_default=False,
            help="The project whose servers and prompts it shares.",
            autocompletion=complete_project,
        ),
    ] = "",
    max_iterations: MaxIterations = None,
    loop_repeats: LoopRepeats = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    top_p: TopP = None,
    top_k: TopK = None,
    seed: Seed = None,
    stop: Stop = None,
    extra: Extra = None,
    params_file: ParamsFile = None,
    folder: ShortFolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Create an agent. `pallas chat NAME` can talk to it at once.

    \b
    pallas create agent reviewer --llm qwen3-thinking \\
      --description "I review each major change before you ship it." \\
      --default-temperature 0.2 --default-max-tokens 4096
    """
    from pallas.cli.resources.create_resources import Defaults
    from pallas.cli.resources.create_resources import create_agent as make

    spec = {
        "description": description,
        "systemPrompt": system_prompt,
        "llm": llm,
        "project": project,
        "maxIterations": max_iterations,
        "loopRepeatThreshold": loop_repeats,
    }
    defaults = Defaults(
        temperature, max_tokens, top_p, top_k, seed, tuple(stop or ()), tuple(extra or ()), params_file
    )
    raise typer.Exit(make(name, spec, system_prompt_file, defaults, reach_of(context, folder, url, token)))


@creations.command("project")
def create_project(
    context: typer.Context,
    name: Name,
    description: Description = "",
    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            metavar="NAME",
            show_default=False,
            help="An MCP server of the folder's configuration, or NAME=URL. Repeatable.",
        ),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            "--prompt", metavar="TEXT", show_default=False, help="A prompt for all its agents. Repeatable."
        ),
    ] = None,
    prompt_file: Annotated[
        list[Path] | None,
        typer.Option(
            "--prompt-file", metavar="FILE", show_default=False, help="The same from a file. Repeatable."
        ),
    ] = None,
    folder: ShortFolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Create a project: servers and prompts that its agents share.

    \b
    pallas create project shop --description "What the shop's agents share" \\
      --server stock --prompt-file house-rules.md
    """
    from pallas.cli.resources.create_resources import create_project as make

    reach = reach_of(context, folder, url, token)
    raise typer.Exit(make(name, description, server or [], prompt or [], prompt_file or [], reach))
