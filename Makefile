# make demo    everything, from a fresh machine to a reranked example
# make serve   a server on 127.0.0.1:50051
# make test    every test
# make setup   the preparation alone
.PHONY: help setup setup-ci build models demo serve test bench-scoring

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

# The engine against a bare loop and a naive program; every design on labelled questions. DATA is a gzipped file of JSON
# lines: id, question, answers, passages {title, text, supporting}.
bench-scoring: setup
	@$(CARGO) bench --locked --bench scoring -- engine --data $(DATA)
	@$(CARGO) bench --locked --bench scoring -- collect --data $(DATA) --out target/scores.jsonl --questions $(or $(QUESTIONS),40) --random $(or $(QUESTIONS),40) --passage-tokens 48
	@$(CARGO) bench --locked --bench scoring -- judge target/scores.jsonl
