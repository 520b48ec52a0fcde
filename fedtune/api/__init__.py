"""The public functions behind the commands; a file is named after its function."""
