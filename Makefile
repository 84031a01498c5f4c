# make demo    everything, from a fresh machine to a reranked example
# make serve   a server on 127.0.0.1:50051
# make test    every test
# make setup   the preparation alone
.PHONY: help setup setup-ci build models demo serve test bench-scoring bench-belief bench-evaluation

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

# The engine against a bare loop and a naive program; every design and arrangement on labelled questions; docs/scoring.md and
# its plot. DATA is one or more gzipped files of JSON lines: id, question, answers, passages {title, text, supporting}; QUESTIONS
# of a file are judged, its last CALIBRATE measure the position profiles. Takes hours; broken off, it goes on with the
# questions not yet scored.
SCORES ?= target/scores.jsonl
bench-scoring: setup
	@$(CARGO) bench --locked --bench scoring -- engine --data $(firstword $(DATA))
	@for file in $(DATA); do \
	  $(CARGO) bench --locked --bench scoring -- collect --data $$file --out $(SCORES) --questions $(or $(QUESTIONS),100) --passage-tokens 48 --designs latin,cyclic,random:30,trie,pruned && \
	  $(CARGO) bench --locked --bench scoring -- arrange --data $$file --questions $(or $(QUESTIONS),100) --calibrate $(or $(CALIBRATE),50) || exit 1; \
	done
	@$(CARGO) bench --locked --bench scoring -- judge --out docs $(SCORES)

# Entailment, sampling and belief measures. DATA is a folder with nli/, equivalence/ and qa/ as benches/belief/main.rs says;
# PYTHON one that has numpy, onnxruntime and tokenizers, for the comparison with its binding.
bench-belief: setup
	@for part in entailment peer tokens repeat gold; do $(CARGO) bench --locked --bench belief -- $$part --data $(DATA) --python $(or $(PYTHON),python3) || exit 1; done

# A million rows beside pytrec_eval (PYTHON is one that has pytrec-eval-terrier), EvaluateRanking over gRPC, and eRAG with every
# annotator on QUESTIONS of each file of DATA, which are as for bench-scoring.
bench-evaluation: setup
	@$(CARGO) bench --locked --bench evaluation -- rows --python $(or $(PYTHON),python3)
	@$(CARGO) bench --locked --bench evaluation -- rpc
	@rm -rf target/evaluation
	@$(CARGO) bench --locked --bench evaluation -- erag $(foreach file,$(DATA),--data $(file)) --questions $(or $(QUESTIONS),50) --out docs
