#!/usr/bin/env python3
"""Starts llama.cpp's own server with a GGUF reranker, for comparison with rerankd in the load benchmark.

    llama-server.py [--program PATH] [--threads N] [--port N] MODEL

With --program, that llama-server is started. Without it the server runs inside the package xllamacpp (pip install xllamacpp), whose
wheel has kernels for AVX2 only: for a fair comparison on a newer CPU build the program for the CPU. The sources of llama.cpp are in
the package's source distribution:

    cmake -B build -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF && cmake --build build --target llama-server

Prints the URL once the server is ready, and ends it when it gets SIGTERM or SIGINT.
"""

import argparse
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

START_SECONDS = 120


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="GGUF file of a reranker")
    parser.add_argument("--program", metavar="PATH", help="llama-server to start; without it the package xllamacpp serves")
    parser.add_argument("--threads", type=int, default=2, help="threads that evaluate a batch; 2 by default")
    parser.add_argument("--port", type=int, default=8081, help="port on 127.0.0.1; 8081 by default")
    parser.add_argument("--slots", type=int, default=4, help="documents evaluated together; 4, the server's default")
    parser.add_argument("--batch", type=int, default=512, help="tokens of a physical batch; 512, the server's default")
    return parser.parse_args()


def start_program(chosen):
    """The server as a separate process. The slots share one cache, as by default. The store of prompts is off, because
    reranking does not read it and would only pay for writing it."""
    flags = {
        "--model": chosen.model, "--host": "127.0.0.1", "--port": chosen.port, "--threads": chosen.threads,
        "--threads-batch": chosen.threads, "--parallel": chosen.slots, "--ubatch-size": chosen.batch, "--cache-ram": 0,
        "--log-verbosity": 1,
    }
    words = [str(word) for pair in flags.items() for word in pair]
    return subprocess.Popen([chosen.program, "--reranking", "--kv-unified", *words])


def start_package(chosen):
    """The server with equal settings inside this process."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = chosen.model
    params.hostnames, params.port = ["127.0.0.1"], chosen.port
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = chosen.threads
    params.n_parallel, params.kv_unified, params.n_ubatch = chosen.slots, True, chosen.batch
    params.embedding, params.pooling_type = True, xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
    params.cache_ram_mib, params.verbosity = 0, 1
    return xllamacpp.Server(params)


def wait(url, process):
    """Returns when the server says that it is ready."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and (process is None or process.poll() is None):
        try:
            if urllib.request.urlopen(f"{url}/health", timeout=5).status == 200:
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit("the server did not start")


def main():
    chosen = options()
    # Both signals end the wait below, and what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    process, server = None, None
    try:
        if chosen.program:
            process = start_program(chosen)
        else:
            server = start_package(chosen)
        url = f"http://127.0.0.1:{chosen.port}"
        wait(url, process)
        print(f"{url}/v1/rerank", flush=True)
        if process:
            sys.exit(process.wait())
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        if process:
            process.terminate()
            process.wait()
        del server


main()
