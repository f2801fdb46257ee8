"""The workbench: what `pallas dev` shows. It may import pallas; never the other way round."""
