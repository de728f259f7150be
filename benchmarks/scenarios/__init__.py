"""One file a scenario: `NAME.run(bench) -> figures`."""
