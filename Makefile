# make demo    prepare the machine, then rerank an example
# make serve   prepare the machine, then serve gRPC on 127.0.0.1:50051 and HTTP on 127.0.0.1:8080; HTTP=ADDRESS, MODEL=FILE for others
# make test    prepare the machine, then run all tests
# make setup   prepare the machine: install packages, build, fetch models, measure their tensor types
# make test-clients   call a server with public Python clients: grpcio, and the SDKs of other rerankers
# make test-distil    train a tiny model with models/distil; installs torch once
# make nightly     what takes long and rarely fails: other features, the image, licences, a minute of fuzzing
# make fuzz        look for inputs that decoders and readers fail on; SECONDS=600 altogether; needs cargo-fuzz
# make test-image   build the files of the image and run them as it runs them; needs root, and another build of llama.cpp
# make test-helm   check the Helm chart: lint, templates, schemas of Kubernetes, policies, alert rules
.PHONY: help setup setup-ci build models demo serve test test-clients test-distil test-helm test-image nightly fuzz bench-scoring bench-belief bench-evaluation bench-ranking bench-answers bench-compress bench-hostile bench-load bench-warm bench-soak bench-gpu

CARGO ?= cargo
# release, or dev for tests: one profile for all, because llama.cpp is built once per profile.
PROFILE ?= release
BINARY = target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/rerankd

help:
	@sed -n 's/^# make/make/p' Makefile

setup: build models

setup-ci:
	@./scripts/setup.sh --ci

build:
	@./scripts/setup.sh
	@[ -e $(BINARY) ] || echo "building llama.cpp and rerankd: 6 to 20 minutes on two cores, once" >&2
	@$(CARGO) build --profile $(PROFILE) --locked

# Fetches the models and measures the tensor types for this CPU, once. Progress goes to standard error.
models: build
	@$(BINARY) models pull >/dev/null

demo: setup
	@./scripts/demo.sh

HTTP ?= 127.0.0.1:8080
serve: setup
	@$(BINARY) serve --listen 127.0.0.1:50051 --http-listen $(HTTP) $(if $(MODEL),--model $(MODEL))

test test-clients test-distil test-helm: PROFILE = dev

test: setup
	$(CARGO) test --workspace --locked --no-fail-fast

test-clients: setup
	@RERANKD=$(BINARY) ./scripts/test-clients.sh

test-distil: setup
	@RERANKD=$(CURDIR)/$(BINARY) ./scripts/test-distil.sh

nightly:
	@./.ci/nightly

fuzz:
	@./scripts/fuzz.sh $(SECONDS)

test-helm:
	@RERANKD=$(CURDIR)/$(BINARY) ./scripts/test-helm.sh

# In a folder of its own, because its flags would build everything again.
STORE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rerankd/models
test-image: models
	@CARGO="$(CARGO)" ./scripts/build-portable.sh target/portable
	@rm -rf target/image
	@ONNXRUNTIME_STORE=$(STORE) ./scripts/image-root.sh target/portable/release target/image
	@./scripts/test-image.sh target/image $(STORE)

# Compares the engine with a bare loop and a naive program, and all designs and arrangements on labelled questions. Writes
# docs/scoring.md and its plot. DATA is one or more gzipped files of JSON lines: id, question, answers, passages {title, text,
# supporting}. QUESTIONS of each file are evaluated; the last CALIBRATE of a file measure the position profiles. Takes hours.
# After an interruption it continues with the questions that have no scores yet.
SCORES ?= target/scores.jsonl
bench-scoring: setup
	@$(CARGO) bench --locked --bench scoring -- engine --data $(firstword $(DATA))
	@for file in $(DATA); do \
	  $(CARGO) bench --locked --bench scoring -- collect --data $$file --out $(SCORES) --questions $(or $(QUESTIONS),100) --passage-tokens 48 --designs latin,cyclic,random:30,trie,pruned && \
	  $(CARGO) bench --locked --bench scoring -- arrange --data $$file --questions $(or $(QUESTIONS),100) --calibrate $(or $(CALIBRATE),50) || exit 1; \
	done
	@$(CARGO) bench --locked --bench scoring -- judge --out docs $(SCORES)

# Measures entailment, sampling and the belief measures. DATA is a folder with nli/, equivalence/ and qa/: snli-dev.tsv.gz, the
# answers of EVOUNA, and questions with their passages (see benches/belief/main.rs). PYTHON is an interpreter with numpy, onnxruntime and tokenizers, for the comparison with Python.
bench-belief: setup
	@for part in entailment peer tokens gold; do $(CARGO) bench --locked --bench belief -- $$part --data $(DATA) --python $(or $(PYTHON),python3) || exit 1; done
	@$(BINARY) analyse repeatability --data $(DATA)/qa/nq-200-random-distractors.jsonl.gz --questions 20 --passages 10 --passage-tokens 48 --json
	@$(BINARY) analyse equivalence --data $(DATA)/equivalence/evouna-nq-1000.jsonl.gz --json

# Compares the metrics of a million rows with pytrec_eval (PYTHON is an interpreter with pytrec-eval-terrier), and measures
# EvaluateRanking over gRPC, and the tables of eRAG (rerankd analyse) on QUESTIONS of each file of DATA, labelled lists with
# answers (docs/papers.md). Pages and figures go to target/evaluation.
bench-evaluation: setup
	@$(CARGO) bench --locked --bench evaluation -- rows --python $(or $(PYTHON),python3)
	@$(CARGO) bench --locked --bench evaluation -- rpc
	@for file in $(DATA); do for kind in erag-correlation erag-cost; do \
	  $(BINARY) analyse $$kind --data $$file --out target/evaluation/$$kind-$$(basename $$file | cut -d. -f1) --restart --json --passages 10 --passage-tokens 64 --questions $(or $(QUESTIONS),50) || exit 1; \
	done; done

# Compares ranking methods on labelled lists as a retriever returns them. DATA is one or more files of JSON lines, gzipped or not
# (docs/comparing.md has the fields). Ranks QUESTIONS of each file, or all, by METHODS. OUT gets a folder a file, and ranking.md
# with the tables of all files, for docs/ranking.md. After an interruption it continues. Questions that a method refuses do not keep
# the other files from being compared; the exit code tells of them. SKIP leaves out so many questions at the beginning,
# PASSAGE_TOKENS cuts passages.
bench-ranking: setup
	@failed=0; begun=$$(mktemp); trap 'rm -f $$begun' EXIT; for file in $(DATA); do \
	  folder=$(or $(OUT),target/ranking)/$$(basename $$file | cut -d. -f1); \
	  touch $$begun; \
	  $(BINARY) compare --data $$file --out $$folder $(if $(QUESTIONS),--questions $(QUESTIONS)) $(if $(SKIP),--skip $(SKIP)) $(if $(PASSAGE_TOKENS),--passage-tokens $(PASSAGE_TOKENS)) $(if $(METHODS),--methods $(METHODS)) || failed=$$?; \
	  test $$folder/compare.md -nt $$begun || exit $$failed; \
	done; \
	for file in $(DATA); do cat $(or $(OUT),target/ranking)/$$(basename $$file | cut -d. -f1)/compare.md && echo || exit 1; done > $(or $(OUT),target/ranking)/ranking.md; \
	exit $$failed

# What a ranking does to answers: log P(reference), containment, F1 and DeltaSePer of the first 1, 3, 5 and all passages, against
# the retriever's order, a random one, and the relevant passages first. DATA as for bench-ranking, with answers. Takes about a
# minute a question; with WHOLE=8, which has all passages as a context for eight questions only, and SAMPLES=0 a quarter of it.
# MOI=5 adds MOI as published over the retriever's first five, METHODS=query-generation,first the orders of these methods.
bench-answers: setup
	@$(CARGO) bench --locked --bench answers -- $(foreach file,$(DATA),--data $(file)) --questions $(or $(QUESTIONS),40) --skip $(or $(SKIP),0) --samples $(or $(SAMPLES),5) $(if $(WHOLE),--whole $(WHOLE)) $(if $(MOI),--moi $(MOI)) $(if $(METHODS),--methods $(METHODS)) $(if $(OUT),--out $(OUT))

# What compression does to answers: tokens, log P(reference) and DeltaSePer of the first five passages at .75, .5 and .25 of their
# tokens, by three compressors, and what they cost, against the whole passages and two shorter contexts of the same tokens. DATA as
# for bench-answers.
bench-compress: setup
	@$(CARGO) bench --locked --bench compress -- $(foreach file,$(DATA),--data $(file)) --questions $(or $(QUESTIONS),40) --skip $(or $(SKIP),0) --samples $(or $(SAMPLES),5)

# 64 hostile callers at once: how long health takes to answer, peak memory, and the end after SIGTERM. Makes its own requests.
bench-hostile: setup
	@$(CARGO) bench --locked --bench hostile

# Offers .5 to 10 times what the server can do, open loop, and measures the cost of a refusal. LOAD has further options
# (docs/overload.md): --http URL measures any server of the rerank API. Reports in ghz's schema go to target/load. Makes its own
# requests.
bench-load: setup
	@$(CARGO) bench --locked --bench load -- $(LOAD)
	@$(CARGO) bench --locked --bench load -- --refusal

# Passages that were read before: seconds of a rerank against the first time, a stream of requests under a bounded store, hit
# rates by simulation, and how far equal requests differ. MODEL is another GGUF file. Makes its own passages.
bench-warm: setup
	@$(CARGO) bench --locked --bench warm -- $(if $(MODEL),--model $(MODEL))

# What an accelerator does: agreement with the CPU, seconds of methods, batches, memory, and prefill beside a bare loop. MODEL is another GGUF
# file, such as one of scripts/random-gguf.py. Runs without an accelerator, too, to see that it works: GPU='--passages 3,5 --rounds 1'.
bench-gpu: setup
	@$(CARGO) bench --locked $(FEATURES) --bench gpu -- $(if $(MODEL),--model $(MODEL)) $(GPU)
	@$(CARGO) bench --locked $(FEATURES) --bench scoring -- engine --only prefill --concurrent 1,4,16,64 --rounds $(or $(ROUNDS),5) $(if $(MODEL),--model $(MODEL))

# Mixed calls for SECONDS with everything on: memory, descriptors and threads in the last third beside the third before.
bench-soak: setup
	@$(CARGO) bench --locked --bench soak -- --seconds $(or $(SECONDS),1800)
