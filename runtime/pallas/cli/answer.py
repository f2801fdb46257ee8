"""`pallas answer`: answer a question that a run asks a person."""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, reach_of
from pallas.safe_text import one_line, sanitize

from .resources.fleet_requests import OK, REFUSED, USAGE, FleetLocation, complain, explained, run_with_fleet

if TYPE_CHECKING:
    from pallas.client import RestClient

Body = dict[str, Any]
_WORDS: Final[Mapping[str, Body]] = {
    "y": {"action": "accept"},
    "a": {"action": "accept", "always": True},
    "n": {"action": "decline"},
}


def answer_question(question: str, given: Body | None, reach: FleetLocation) -> int:
    """Send the answer, asked for on the terminal without one; returns the exit status."""

    async def work(api: "RestClient") -> int:
        from pallas.client import NoFleetAnswers
        from pallas.client.rest_client import part
        from pallas.model import Fault

        path = f"/questions/{part(question)}"
        try:
            found = await api.get(path, visible=True)
            body = given or _asked(found)
            if body is None:
                complain(
                    f"pallas answer: {question[:40]} is not answered yet; add --yes, --no, --always "
                    f"or --content"
                )
                return REFUSED
            done = await api.post(f"{path}/answer", body)
        except NoFleetAnswers:
            raise
        except Fault as fault:
            complain(f"{one_line(question, 40)}: {await explained(api, fault)}")
            return REFUSED
        print(f"{done.get('id')} {'always ' if done.get('always') else ''}{done.get('action')}")
        return OK

    return run_with_fleet(reach, work)


def _asked(question: Mapping[str, Any]) -> Body | None:
    """The answer that a person gives on the terminal; None without one."""
    print(sanitize(shown(question)), file=sys.stderr)
    if not sys.stdin.isatty() or question.get("kind") != "approval":
        return None
    print("Allow it? [y]es, [a]lways in this thread, [n]o: ", end="", file=sys.stderr, flush=True)
    return _WORDS.get(sys.stdin.readline().strip().lower()[:1])


def shown(question: Mapping[str, Any]) -> str:
    """A question for a person: what is asked, by whom, with which arguments."""
    chain = " > ".join(map(str, (*(question.get("path") or ()), question.get("agent"))))
    lines = [str(question.get("message") or ""), f"asked by {chain}, until {question.get('expiresAt')}"]
    if question.get("tool"):
        lines.append(f"{question['tool']} {json.dumps(question.get('arguments'), ensure_ascii=False)}")
    if question.get("form"):
        lines.append(f"--content must fit: {json.dumps(question['form'], ensure_ascii=False)}")
    return "\n".join(lines)


def answer(
    context: typer.Context,
    question: Annotated[
        str, typer.Argument(metavar="ID", help="The question, as `pallas get questions` lists it.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Allow the call once.")] = False,
    no: Annotated[bool, typer.Option("--no", "-n", help="Refuse it.")] = False,
    always: Annotated[bool, typer.Option("--always", help="Allow the tool in this thread.")] = False,
    content: Annotated[
        str,
        typer.Option(
            "--content", metavar="JSON", show_default=False, help="Fill in the form with this object."
        ),
    ] = "",
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Answer a run's question: allow or refuse a call, or fill in a form. Asks on a terminal.

    \b
    pallas get questions
    pallas answer q-1f0c9d... --yes
    pallas answer q-1f0c9d... --content '{"size": 3}'
    """
    if sum((yes, no, always, bool(content))) > 1:
        complain("pallas answer: give only one of --yes, --no, --always and --content")
        raise typer.Exit(USAGE)
    given: Body | None = None
    if yes or always:
        given = {"action": "accept", "always": always}
    elif no:
        given = {"action": "decline"}
    elif content:
        given = _filled(content)
    raise typer.Exit(answer_question(question, given, reach_of(context, folder, url, token)))


def _filled(content: str) -> Body:
    try:
        found = json.loads(content)
    except ValueError as error:
        found = error
    if not isinstance(found, dict):
        complain('pallas answer: --content is not a JSON object; write \'{"field": "value"}\'')
        raise typer.Exit(USAGE)
    return {"action": "accept", "content": found}
