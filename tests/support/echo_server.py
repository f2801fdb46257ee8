"""A stdio MCP server that echoes, in both protocol versions; standard library only, so it starts at once.

On the wire it is what ``MCPServer("echo")`` of the SDK is with three such tools
(``tests/contract/test_echo_server.py`` compares them).
"""

import json
import sys
import threading

MODERN = "2026-07-28"
SERVER = {"name": "echo", "version": ""}
TOOLS = {"echo": "Say it again.", "boom": "Fail.", "slow": "Take a minute."}


def write(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def listed(name, says):
    def shape(suffix, field):
        fields = {field: {"title": field.title(), "type": "string"}}
        return {"type": "object", "title": name + suffix, "properties": fields, "required": [field]}

    tool = {"name": name, "description": says, "inputSchema": shape("Arguments", "text")}
    return {**tool, "outputSchema": shape("Output", "result")}


def text_of(value, failed=False):
    more = {} if failed else {"structuredContent": {"result": value}}
    return {"content": [{"type": "text", "text": value}], "isError": failed, **more}


def called(name, arguments):
    if name not in TOOLS:
        return text_of("Unknown tool: " + name, failed=True)
    if not isinstance(arguments.get("text"), str):
        return text_of(f"Error executing tool {name}: 1 validation error for {name}Arguments", failed=True)
    if name == "boom":
        return text_of("Error executing tool boom", failed=True)
    return text_of("echo:" + arguments["text"])


def result_of(method, params):
    if method == "initialize":
        changes = {"listChanged": False}
        can = {"prompts": changes, "resources": {"subscribe": False, **changes}, "tools": changes}
        return {"protocolVersion": params["protocolVersion"], "capabilities": can, "serverInfo": SERVER}
    if method == "server/discover":
        changes = {"listChanged": True}
        can = {"prompts": changes, "resources": {"subscribe": True, **changes}, "tools": changes}
        return {"supportedVersions": [MODERN], "capabilities": can}
    if method == "tools/call":
        return called(params["name"], params.get("arguments") or {})
    lists = {"tools": [listed(*each) for each in TOOLS.items()]}
    kind = method.removesuffix("/list")
    return {} if method == "ping" else {kind: lists.get(kind, [])} if kind != method else None


def answer(id_, method, params):
    result = result_of(method, params)
    if result is None:
        write(id=id_, error={"code": -32601, "message": "Method not found", "data": method})
        return
    if params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion") == MODERN:
        result |= {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": SERVER}}
        if method != "tools/call":
            result |= {"cacheScope": "private", "ttlMs": 0}
    write(id=id_, result=result)


def serve():
    waiting = {}
    for line in sys.stdin:
        message = json.loads(line)
        id_, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method == "notifications/cancelled":
            if timer := waiting.pop(params.get("requestId"), None):
                timer.cancel()
        elif id_ is None or method is None:
            continue
        elif method == "subscriptions/listen":
            about = {"io.modelcontextprotocol/subscriptionId": id_}
            told = {"_meta": about, "notifications": params["notifications"]}
            write(method="notifications/subscriptions/acknowledged", params=told)
        elif method == "tools/call" and params["name"] == "slow":
            timer = waiting[id_] = threading.Timer(60, write, kwargs={"id": id_, "result": text_of("slow")})
            timer.daemon = True
            timer.start()
        else:
            answer(id_, method, params)


serve()
