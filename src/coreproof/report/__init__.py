"""What coreproof tells the user: the terminal table, the JSON document, the progress display."""
