"""An organism with every section of xml-pipeline's documented example, and code that fits it."""

from pathlib import Path

from .certificates import authority
from .ports import free_ports

RESEARCH = """\
organism:
  name: "Swarm-7"
  identity: "config/identity/own.ed25519"
  port: PORT
  tls:
    cert: "certs/fullchain.pem"
    key: "certs/privkey.pem"

oob:
  enabled: true
  bind: "127.0.0.1"
  port: 8766

thread_scheduling: "breadth-first"

meta:
  enabled: true
  allow_list_capabilities: true
  allow_schema_requests: "admin"
  allow_example_requests: "admin"
  allow_prompt_requests: "admin"
  allow_remote: false

listeners:
  - name: calculator.add
    payload_class: tools.calculator.AddPayload
    handler: tools.calculator.add
    description: "Adds two integers."
  - name: calculator.multiply
    payload_class: tools.calculator.MultiplyPayload
    handler: tools.calculator.multiply
    description: "Multiplies two integers."
  - name: local_summarizer
    payload_class: agents.summarizer.SummarizePayload
    handler: agents.summarizer.summarize
    description: "Shortens a text."
  - name: researcher
    payload_class: agents.researcher.ResearchPayload
    handler: agents.researcher.research
    description: "Researches with the tools of the others."
    agent: true
    peers:
      - calculator.add
      - calculator.multiply
      - local_summarizer
      - web_search
  - name: search.north
    payload_class: gateways.north.SearchPayload
    handler: gateways.north.search
    description: "Searches in the north."
    broadcast: true
  - name: search.south
    payload_class: gateways.north.SearchPayload
    handler: gateways.south.search
    description: "Searches in the south."
    broadcast: true

gateways:
  - name: web_search
    remote_url: "wss://search.example.org"
    trusted_identity: "pubkeys/search.ed25519.pub"
    description: "Search elsewhere."

llm:
  strategy: failover
  retries: 3
  retry_base_delay: 1.0
  retry_max_delay: 60.0
  backends:
    - provider: xai
      api_key_env: XAI_API_KEY
      priority: 1
      rate_limit_tpm: 100000
      max_concurrent: 20
    - provider: anthropic
      api_key_env: ANTHROPIC_API_KEY
      priority: 2
    - provider: ollama
      base_url: http://localhost:11434
      supported_models: [llama3, mistral]
"""
"""Every section and key of the full example in xml-pipeline's configuration documentation."""

CALCULATOR = """\
from dataclasses import dataclass

from third_party.xmlable import xmlify
from xml_pipeline.message_bus.message_state import HandlerMetadata, HandlerResponse


@xmlify
@dataclass
class AddPayload:
    first_number: int
    second_number: int


@xmlify
@dataclass
class MultiplyPayload:
    first_number: int
    second_number: int


@xmlify
@dataclass
class ResultPayload:
    value: int


async def add(payload: AddPayload, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse(
        payload=ResultPayload(value=payload.first_number + payload.second_number), to=metadata.from_id
    )


async def multiply(payload: MultiplyPayload, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(ResultPayload(value=payload.first_number * payload.second_number))
"""
SUMMARIZER = """\
from dataclasses import dataclass

from third_party.xmlable import xmlify
from xml_pipeline.message_bus import HandlerMetadata
from xml_pipeline.message_bus.message_state import HandlerResponse


@xmlify
@dataclass
class SummarizePayload:
    text: str


async def summarize(payload: SummarizePayload, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(SummarizePayload(payload.text[:10]))
"""
RESEARCHER = """\
from dataclasses import dataclass

from third_party.xmlable import xmlify
from tools.calculator import AddPayload, MultiplyPayload, ResultPayload
from xml_pipeline.message_bus.message_state import HandlerMetadata, HandlerResponse


@xmlify
@dataclass
class ResearchPayload:
    query: str


@xmlify
@dataclass
class Research:
    answer: str


async def research(payload: ResearchPayload, metadata: HandlerMetadata) -> HandlerResponse:
    assert metadata.own_name == "researcher" and metadata.todo_nudge == ""
    if isinstance(payload, ResearchPayload) and payload.query == "elsewhere":
        return HandlerResponse(payload, to="web_search")
    if isinstance(payload, ResearchPayload):
        return HandlerResponse(AddPayload(2, 3), to="calculator.add")
    if isinstance(payload, ResultPayload) and payload.value == 5:
        return HandlerResponse(MultiplyPayload(payload.value, 4), to="calculator.multiply")
    if isinstance(payload, ResultPayload):
        return HandlerResponse.respond(Research(f"it is {payload.value}"))
    return HandlerResponse.respond(Research(f"{type(payload).__name__}: {payload.code}"))
"""
SEARCH = """\
from dataclasses import dataclass

from third_party.xmlable import xmlify
from xml_pipeline.message_bus.message_state import HandlerMetadata, HandlerResponse


@xmlify
@dataclass
class SearchPayload:
    query: str


async def search(payload: SearchPayload, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(payload)
"""


def write_research(root: Path) -> Path:
    """Write the whole documented organism with its code and a certificate; return what clients trust."""
    (port,) = free_ports(1)
    files = {
        "organism.yaml": RESEARCH.replace("PORT", str(port)),
        "tools/__init__.py": "",
        "tools/calculator.py": CALCULATOR,
        "agents/__init__.py": "",
        "agents/summarizer.py": SUMMARIZER,
        "agents/researcher.py": RESEARCHER,
        "gateways/__init__.py": "",
        "gateways/north.py": SEARCH,
        "gateways/south.py": "from gateways.north import search as search\n",
        "certs/README": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    signer = authority(root / "certs")
    certificate, key = signer.issue(root / "certs")
    certificate.rename(root / "certs/fullchain.pem")
    key.rename(root / "certs/privkey.pem")
    return signer.file
