# syntax=docker/dockerfile:1
# The daemon alone: no Spark, no build tools, no root.
#
#   docker build -t binlog-dispatcher .
#   docker run -p 127.0.0.1:8085:8085 -v ./dispatcher.yaml:/etc/binlog-dispatcher/dispatcher.yaml:ro \
#       -v binlog-dispatcher:/var/lib/binlog-dispatcher binlog-dispatcher
#
# In a container set `api: {listen: "0.0.0.0:8085"}`, which requires tokens.

# The base image is pinned by the digest of its multi-architecture index, so that every build starts from the same bytes:
# python:3.13-slim as of September 2026, Python 3.13.15 on Debian 13. Renew it at least monthly, for Debian's security
# updates, in both FROM lines:
#
#   docker buildx imagetools inspect python:3.13-slim      # the line "Digest:" at the top
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/binlog-dispatcher
ENV PATH=/opt/binlog-dispatcher/bin:$PATH
WORKDIR /src
COPY deploy/daemon.lock deploy/daemon.lock
RUN pip install --require-hashes --no-deps -r deploy/daemon.lock
COPY pyproject.toml README.md LICENSE ./
COPY dispatcher dispatcher
COPY spark_sink spark_sink
RUN pip install --no-deps --no-build-isolation .

FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
RUN useradd --system --uid 8085 --home-dir /var/lib/binlog-dispatcher --create-home binlog-dispatcher
COPY --from=build /opt/binlog-dispatcher /opt/binlog-dispatcher
# Compiled kernels are cached next to the state, so that the root file system can be read-only.
ENV PATH=/opt/binlog-dispatcher/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/lib/binlog-dispatcher/kernels
USER 8085:8085
VOLUME /var/lib/binlog-dispatcher
EXPOSE 8085
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8085/livez', timeout=2)"]
ENTRYPOINT ["binlog-dispatcher"]
CMD ["run", "--config", "/etc/binlog-dispatcher/dispatcher.yaml"]
