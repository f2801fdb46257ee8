"""Small JSON files beside the settings: what the workbench itself keeps between two starts."""

from pallas.json_file import MAX_FILE, JsonFile

__all__ = ["MAX_FILE", "JsonFile"]
