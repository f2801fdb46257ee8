"""The tools of an agent's servers, by the names that models see."""

from collections.abc import Callable, Mapping
from operator import is_

from fast_agent.mcp.mcp_aggregator import MCPToolCatalog, NamespacedTool

from pallas.downstreams.offer import Offer
from pallas.downstreams.tool_names import ToolNames


class ToolCatalog:
    """Made of what the servers offer; tools for which ``leaves_out`` is true are in none of its lists.

    ``shown`` gives the name that a server has for models.
    """

    def __init__(
        self,
        offers: Mapping[str, Offer],
        shown: Callable[[str], str],
        leaves_out: Callable[[str, str], bool],
    ) -> None:
        self._offers = tuple(offers.items())
        self.names = ToolNames(
            {shown(server): [tool.name for tool in offer.tools] for server, offer in offers.items()}
        )
        self.tools: dict[str, NamespacedTool] = {}
        by_server: dict[str, list[NamespacedTool]] = {}
        for server, offer in offers.items():
            for tool in offer.tools:
                if leaves_out(server, tool.name):
                    continue
                name = self.names.shown(shown(server), tool.name)
                each = NamespacedTool(tool=tool, server_name=server, namespaced_tool_name=name)
                self.tools[name] = each
                by_server.setdefault(server, []).append(each)
        self.listed = tuple(each.tool.model_copy(update={"name": name}) for name, each in self.tools.items())
        """With these names."""
        self.snapshot = MCPToolCatalog.snapshot(
            by_namespaced_name=self.tools, by_server=by_server, server_names=offers
        )
        """For fast-agent."""

    def is_of(self, offers: Mapping[str, Offer]) -> bool:
        """Return whether it was made of these."""
        return [name for name, _ in self._offers] == list(offers) and all(
            map(is_, (offer for _, offer in self._offers), offers.values())
        )
