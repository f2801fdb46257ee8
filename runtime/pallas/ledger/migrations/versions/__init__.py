"""One file for each form that the tables had."""
