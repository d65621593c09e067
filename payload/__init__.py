"""What experiments deploy: a decode engine, its indexer, cache and graph runner."""
