# syntax=docker/dockerfile:1
# Images of rerankd for CPUs.
#
#   docker build -t rerankd:0.1.0 .                      the server: no shell, no Python, no models
#   docker build -t rerankd:0.1.0-pull --target pull .   with Python and pip, for `rerankd models pull` of catalogue models
#
# MODELS lists catalogue models to include, for example --build-arg MODELS="smollm2-135m-instruct all-minilm-l6-v2
# onnxruntime". Read their licences before you distribute such an image.

FROM rust:1.95-slim-trixie AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends binutils ca-certificates cmake g++ libclang-dev make python3 python3-pip \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG MODELS=""
# A separate cache for each architecture, because image-root.sh uses the newest kernels that it finds in the cache.
ARG TARGETARCH
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,id=rerankd-target-${TARGETARCH},target=/src/target \
    scripts/build-portable.sh \
 && ONNXRUNTIME_STORE=/store scripts/image-root.sh target/release /image \
 && if [ -n "$MODELS" ]; then \
      # The fastest tensor type depends on the CPU of the server, so it is not measured here.
      /image/usr/bin/rerankd models pull $MODELS --set models.store=/image/usr/share/rerankd/models --set generator.reencode_megabytes=off \
      && chmod -R a+rX,go-w /image/usr/share/rerankd/models; \
    fi

FROM python:3.13-slim-trixie AS pull
RUN groupadd --gid 10001 rerankd && useradd --uid 10001 --gid 10001 --home-dir /var/lib/rerankd --create-home rerankd \
 && ln -s ../lib/rerankd/rerankd /usr/bin/rerankd
COPY --from=build /image/usr/lib/rerankd /usr/lib/rerankd
ENV XDG_CACHE_HOME=/var/lib HOME=/tmp PIP_NO_CACHE_DIR=1
USER 10001:10001
ENTRYPOINT ["/usr/bin/rerankd"]
CMD ["models", "pull"]

FROM scratch AS server
COPY --from=build /image /
COPY --from=build --chown=10001:10001 /image/var/lib/rerankd /var/lib/rerankd
# The store is /var/lib/rerankd/models, unless the configuration names another one.
ENV XDG_CACHE_HOME=/var/lib
USER 10001:10001
WORKDIR /
EXPOSE 50051 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m CMD ["/usr/bin/rerankd", "health"]
ENTRYPOINT ["/usr/bin/rerankd"]
# Other machines can reach a container's ports, so the server starts only with TLS, tokens or server.allow_insecure.
CMD ["serve", "--listen", "0.0.0.0:50051", "--http-listen", "0.0.0.0:8080"]
