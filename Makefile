# make demo    everything, from a fresh machine to a reranked example
# make serve   a server on 127.0.0.1:50051
# make test    every test
# make setup   the preparation alone
.PHONY: help setup setup-ci build models demo serve test bench-rerank

CARGO ?= cargo
BINARY := target/release/rerankd

help:
	@sed -n 's/^# make/make/p' Makefile

setup: build models

setup-ci:
	@./scripts/setup.sh --ci

build:
	@./scripts/setup.sh
	@$(CARGO) build --release --locked --quiet

models: build
	@$(BINARY) models pull >/dev/null

demo: setup
	@./scripts/demo.sh

serve: setup
	@$(BINARY) serve --listen 127.0.0.1:50051

# Release, because llama.cpp is built once a profile and is what the tests wait for.
test: setup
	$(CARGO) test --release --locked

# Gold passages found on data of your own: make bench-rerank DATA=questions.jsonl.gz
bench-rerank: setup
	@$(CARGO) bench --locked --bench rerank -- --data $(DATA)
