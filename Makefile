# make demo    prepare the machine, then rerank an example
# make serve   prepare the machine, then serve gRPC on 127.0.0.1:50051 and HTTP on 127.0.0.1:8080; HTTP=ADDRESS, MODEL=FILE for other values
# make test    prepare the machine, then run all tests
# make setup   prepare the machine: install packages, build, fetch models, measure their tensor types
# make test-clients   call a server with public Python clients: grpcio, and the SDKs of other rerankers
# make test-python    check and test the Python package of clients/python
# make test-docs      run the examples of the documentation against a server with the default models
# make test-distil    train a tiny model with models/distil; installs torch once
# make nightly     run the slow checks: other features, the Python client, the documentation's examples, the image, the archive, the page, licences, a minute of fuzzing
# make fuzz        search for inputs on which decoders and parsers fail; SECONDS=600 in total; needs cargo-fuzz
# make docs        build the documentation into target/book; SERVE=1 also serves it on 127.0.0.1:3000
# make test-image   build the files of the image and run them under the same conditions; needs root, and builds llama.cpp again
# make test-page    test the page at / of a server in Chromium; OUT=FOLDER also writes screenshots
# make dist     pack an archive and wheels for other machines into target/dist, and test them; needs root, and builds llama.cpp again
# make test-helm   check the Helm chart: lint, templates, schemas of Kubernetes, policies, alert rules
.PHONY: help setup setup-ci build models entailment demo serve test test-clients test-python test-docs test-distil test-helm test-image test-page dist docs nightly fuzz bench-scoring bench-belief bench-evaluation bench-ranking bench-answers bench-compress bench-context bench-hostile bench-load bench-live bench-warm bench-soak bench-gpu

CARGO ?= cargo
# The cargo profile: release, or dev for tests. All targets use the same one, because llama.cpp is built once per
# profile.
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

# Downloads the models that rerank and measures the tensor types for this CPU, once. Progress is printed to standard error.
models: build
	@$(BINARY) models pull >/dev/null

# The tests and benchmarks of answers also need the entailment model. It states no licence, so `models` leaves it out.
entailment: setup
	@$(BINARY) models pull deberta-v3-xsmall-nli >/dev/null

demo: setup
	@./scripts/demo.sh

serve: setup
	@$(BINARY) serve $(if $(HTTP),--http-listen $(HTTP)) $(if $(MODEL),--model $(MODEL))

test test-clients test-python test-docs test-distil test-helm test-page: PROFILE = dev

test: entailment
	$(CARGO) test --workspace --locked --no-fail-fast

test-clients: entailment
	@RERANKD=$(BINARY) ./scripts/test-clients.sh

test-python: entailment
	@RERANKD=$(CURDIR)/$(BINARY) ./scripts/test-python.sh

test-docs: entailment
	@RERANKD=$(CURDIR)/$(BINARY) python3 scripts/test-docs.py

test-distil: setup
	@RERANKD=$(CURDIR)/$(BINARY) ./scripts/test-distil.sh

test-page: setup
	@RERANKD=$(BINARY) ./scripts/test-page.sh $(OUT)

docs:
	@RERANKD=$(wildcard $(BINARY)) ./scripts/docs.sh $(if $(SERVE),--serve)

nightly:
	@./.ci/nightly

fuzz:
	@./scripts/fuzz.sh $(SECONDS)

test-helm:
	@RERANKD=$(CURDIR)/$(BINARY) ./scripts/test-helm.sh

# Uses its own target folder, because its flags would rebuild everything.
STORE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rerankd/models
test-image: entailment
	@CARGO="$(CARGO)" ./scripts/build-portable.sh target/portable
	@rm -rf target/image
	@ONNXRUNTIME_STORE=$(STORE) ./scripts/image-root.sh target/portable/release target/image
	@./scripts/test-image.sh target/image $(STORE)

dist:
	@$(or $(PYTHON),python3) -c 'import ensurepip, tomllib, venv' || { echo "make dist: needs Python 3.11 or newer with venv: apt-get install python3-venv" >&2; exit 1; }
	@[ "$$(id -u)" -eq 0 ] || { echo "make dist: run it as root: the test mounts folders" >&2; exit 1; }
	@./scripts/setup.sh
	@CARGO="$(CARGO)" ./scripts/build-portable.sh target/portable lab
	@rm -rf target/dist
	@CARGO="$(CARGO)" ./scripts/dist.sh target/portable/release target/dist $(STORE)
	@./scripts/test-dist.sh target/dist $(STORE)

# Compares the engine with a bare loop and a naive program, and compares all designs and arrangements on labelled
# questions. Writes docs/experiments/scoring.md and its plot. DATA is one or more gzipped files of JSON lines with the
# fields id, question, answers and passages {title, text, supporting}. QUESTIONS of each file are evaluated; the last
# CALIBRATE questions of a file are used to measure the position profiles. Takes hours. After an interruption it
# continues with the questions that have no scores yet.
SCORES ?= target/scores.jsonl
bench-scoring: setup
	@$(CARGO) bench --locked --bench scoring -- engine --data $(firstword $(DATA))
	@for file in $(DATA); do \
	  $(CARGO) bench --locked --bench scoring -- collect --data $$file --out $(SCORES) --questions $(or $(QUESTIONS),100) --passage-tokens 48 --designs latin,cyclic,random:30,trie,pruned && \
	  $(CARGO) bench --locked --bench scoring -- arrange --data $$file --questions $(or $(QUESTIONS),100) --calibrate $(or $(CALIBRATE),50) || exit 1; \
	done
	@$(CARGO) bench --locked --bench scoring -- judge --out docs/experiments $(SCORES)

# Measures entailment, sampling and the belief measures. DATA is a folder with nli/, equivalence/ and qa/:
# snli-dev.tsv.gz, the answers of EVOUNA, and questions with their passages (see benches/belief/main.rs). PYTHON is an
# interpreter with numpy, onnxruntime and tokenizers, for the comparison with Python.
bench-belief: entailment
	@for part in entailment peer tokens gold; do $(CARGO) bench --locked --bench belief -- $$part --data $(DATA) --python $(or $(PYTHON),python3) || exit 1; done
	@$(BINARY) analyse repeatability $(DATA)/qa/nq-200-random-distractors.jsonl.gz --limit 20 --passages 10 --passage-tokens 48 --format json
	@$(BINARY) analyse equivalence $(DATA)/equivalence/evouna-nq-1000.jsonl.gz --format json

# Compares the metrics of a million rows with pytrec_eval (PYTHON is an interpreter with pytrec-eval-terrier). Measures
# EvaluateRanking over gRPC. Computes the tables of eRAG (rerankd analyse) for QUESTIONS of each file of DATA, which
# contains labelled lists with answers (docs/experiments/papers.md). Pages and figures are written to target/evaluation.
bench-evaluation: entailment
	@$(CARGO) bench --locked --bench evaluation -- rows --python $(or $(PYTHON),python3)
	@$(CARGO) bench --locked --bench evaluation -- rpc
	@for file in $(DATA); do for kind in erag-correlation erag-cost; do \
	  $(BINARY) analyse $$kind $$file --out target/evaluation/$$kind-$$(basename $$file | cut -d. -f1) --restart --format json --passages 10 --passage-tokens 64 --limit $(or $(QUESTIONS),50) || exit 1; \
	done; done

# Compares ranking methods on labelled lists as a retriever returns them. DATA is one or more files of JSON lines,
# gzipped or not (docs/reference/formats.md describes the fields). Ranks QUESTIONS of each file, or all, by METHODS. OUT
# gets one folder for each file, and ranking.md with the tables of all files. After an interruption it continues. If a
# method refuses a question, the other files are still compared, and the exit code is not 0. SKIP is the number of
# questions to skip at the beginning; PASSAGE_TOKENS cuts passages to that length.
bench-ranking: setup
	@failed=0; begun=$$(mktemp); trap 'rm -f $$begun' EXIT; for file in $(DATA); do \
	  folder=$(or $(OUT),target/ranking)/$$(basename $$file | cut -d. -f1); \
	  touch $$begun; \
	  $(BINARY) compare $$file --out $$folder $(if $(QUESTIONS),--limit $(QUESTIONS)) $(if $(SKIP),--skip $(SKIP)) $(if $(PASSAGE_TOKENS),--passage-tokens $(PASSAGE_TOKENS)) $(if $(METHODS),--method $(METHODS)) || failed=$$?; \
	  test $$folder/compare.md -nt $$begun || exit $$failed; \
	done; \
	for file in $(DATA); do cat $(or $(OUT),target/ranking)/$$(basename $$file | cut -d. -f1)/compare.md && echo || exit 1; done > $(or $(OUT),target/ranking)/ranking.md; \
	exit $$failed

# Measures how a ranking changes answers: log P(reference), containment, F1 and DeltaSePer of the first 1, 3, 5 and all
# passages, compared with the retriever's order, a random order, and an order with the relevant passages first. DATA as
# for bench-ranking, with answers. Takes about a minute per question, or a quarter of that with SAMPLES=0 and WHOLE=8
# (only eight questions then use all passages as a context). MOI=5 adds MOI as published over the retriever's first five
# passages. METHODS=query-generation,first adds the orders of these methods.
bench-answers: entailment
	@$(CARGO) bench --locked --bench answers -- $(foreach file,$(DATA),--data $(file)) --questions $(or $(QUESTIONS),40) --skip $(or $(SKIP),0) --samples $(or $(SAMPLES),5) $(if $(WHOLE),--whole $(WHOLE)) $(if $(MOI),--moi $(MOI)) $(if $(METHODS),--methods $(METHODS)) $(if $(OUT),--out $(OUT))

# Measures how compression changes answers: tokens, log P(reference) and DeltaSePer of the first five passages,
# compressed to 0.75, 0.5 and 0.25 of their tokens by three compressors, and the cost of compression. Compares them with
# the uncompressed passages and with two shorter contexts of the same number of tokens. DATA as for bench-answers.
bench-compress: entailment
	@$(CARGO) bench --locked --bench compress -- $(foreach file,$(DATA),--data $(file)) --questions $(or $(QUESTIONS),40) --skip $(or $(SKIP),0) --samples $(or $(SAMPLES),5)

# Compares contexts of 128 to 1,024 tokens by BuildContext, by the ranked list and by the first-stage order, and with
# near-copies in the lists. DATA as for bench-answers.
bench-context: setup
	@$(CARGO) bench --locked --bench context -- $(foreach file,$(DATA),--data $(file)) --questions $(or $(QUESTIONS),40) --skip $(or $(SKIP),0)

# Sends requests from 64 hostile callers at once. Measures how long health checks take, peak memory, and the exit after
# SIGTERM. Generates its own requests.
bench-hostile: setup
	@$(CARGO) bench --locked --bench hostile

# Sends 0.5 to 10 times the load that the server can handle, open loop, and measures the cost of a refusal. LOAD
# contains further options (docs/experiments/overload.md): --http URL measures any server with the rerank API. Reports in ghz's
# schema are written to target/load. Generates its own requests.
bench-load: setup
	@$(CARGO) bench --locked --bench load -- $(LOAD)
	@$(CARGO) bench --locked --bench load -- --refusal

# Measures the latency of requests with and without the measurement of live traffic, and that a server under load measures
# nothing: about eight minutes.
bench-live: entailment
	@$(CARGO) bench --locked --bench load -- --live --seconds 60

# Measures reranks of passages that the server has already read: time compared with the first rerank, a stream of
# requests with a bounded store, hit rates by simulation, and how far the results of equal requests differ. MODEL is
# another GGUF file. Generates its own passages.
bench-warm: setup
	@$(CARGO) bench --locked --bench warm -- $(if $(MODEL),--model $(MODEL))

# Measures an accelerator: agreement with the CPU, time of the methods, batches, memory, and prefill compared with a
# bare loop. MODEL is another GGUF file, for example one written by scripts/random-gguf.py. Also runs without an
# accelerator, to test the benchmark itself: GPU='--passages 3,5 --rounds 1'.
bench-gpu: setup
	@$(CARGO) bench --locked $(FEATURES) --bench gpu -- $(if $(MODEL),--model $(MODEL)) $(GPU)
	@$(CARGO) bench --locked $(FEATURES) --bench scoring -- engine --only prefill --concurrent 1,4,16,64 --rounds $(or $(ROUNDS),5) $(if $(MODEL),--model $(MODEL))

# Sends mixed calls for SECONDS with all features on. Compares memory, descriptors and threads in the last third with
# the third before it.
bench-soak: entailment
	@$(CARGO) bench --locked --bench soak -- --seconds $(or $(SECONDS),1800)
