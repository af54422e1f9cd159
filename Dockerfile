# Belay's worker, with the command line beside it.
#
#   docker build -t belay .
#
# The bases are arguments, so that a site can name its own mirror. PROGRAMS can
# name an image with both programs in /out, where they were built elsewhere.
ARG GO_IMAGE=golang:1.26.8-bookworm
ARG BASE=debian:bookworm-20260918-slim
ARG PROGRAMS=build

FROM ${GO_IMAGE} AS build
ENV CGO_ENABLED=0 GOWORK=off GOTOOLCHAIN=local
ARG GOPROXY
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN go build -trimpath -buildvcs=false -ldflags "-s -w -X belay.run/internal/version.version=${VERSION}" -o /out/belay-worker ./worker \
 && go build -trimpath -buildvcs=false -ldflags "-s -w -X belay.run/internal/version.version=${VERSION}" -o /out/belay ./starter

FROM ${BASE} AS base
# What steps can count on: a shell, git, and the roots of trust for both. A site
# whose steps need more builds FROM this image and installs it.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log \
 && groupadd --gid 65532 belay \
 && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /var/lib/belay --shell /usr/sbin/nologin belay \
 && install -d -o 65532 -g 65532 -m 0700 /var/lib/belay \
 && install -d -o 65532 -g 65532 -m 0755 /var/lib/belay-store

FROM ${PROGRAMS} AS programs

FROM base
ARG VERSION=devel
LABEL org.opencontainers.image.title="Belay worker" \
      org.opencontainers.image.description="Runs delivery pipelines on Temporal" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=programs /out/belay-worker /out/belay /usr/local/bin/
COPY deploy/image/belay-healthy /usr/local/bin/
ENV BELAY_STATE_DIR=/var/lib/belay \
    BELAY_STORE=file:///var/lib/belay-store
USER 65532:65532
WORKDIR /var/lib/belay
VOLUME ["/var/lib/belay", "/var/lib/belay-store"]
EXPOSE 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["belay-healthy"]
# No init beside it: as PID 1 the worker reaps what steps leave, and passes
# signals on.
ENTRYPOINT ["belay-worker"]
