"""A fleet under load to which things happen all the time, and the account of every run at the end."""
