"""The panes, dialogs and bars on the screen."""
