"""What every MCP client of Pallas needs: limits on what servers send, and stdio servers that misbehave."""
