"""What becomes of what fails: when it is started again, and when no more."""
