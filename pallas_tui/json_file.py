"""Small JSON files in the settings folder: state that the workbench keeps between two starts."""

from pallas.json_file import MAX_FILE, JsonFile

__all__ = ["MAX_FILE", "JsonFile"]
