# syntax=docker/dockerfile:1
# Two images: `daemon` (the default), without Spark, and `mirror`, with Spark, Java and Delta's jars. Neither has build
# tools or runs as root, and the root file system of both may be read-only.
#
#   docker build -t binlog-dispatcher .
#   docker run --read-only --tmpfs /tmp -p 127.0.0.1:8085:8085 -v ./dispatcher.yaml:/etc/binlog-dispatcher/dispatcher.yaml:ro \
#       -v binlog-dispatcher:/var/lib/binlog-dispatcher binlog-dispatcher
#   docker build -t binlog-dispatcher-spark --target mirror .
#
# In a container set `api: {listen: "0.0.0.0:8085"}`, which requires tokens. deploy/image/chroot.py runs these steps without
# an engine; docs/kubernetes.md describes the images.

# The base image is pinned by the digest of its multi-architecture index, so that every build starts from the same bytes:
# python:3.13-slim as of September 2026, Python 3.13.15 on Debian 13. Replace the digest at least monthly, to get Debian's
# security updates. This command prints the newest one:
#
#   docker buildx imagetools inspect python:3.13-slim      # the line "Digest:" at the top
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS base
ENV PATH=/opt/binlog-dispatcher/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

FROM base AS build-daemon
RUN python -m venv /opt/binlog-dispatcher
WORKDIR /src
COPY deploy/daemon.lock deploy/daemon.lock
RUN pip install --require-hashes --no-deps -r deploy/daemon.lock
COPY pyproject.toml README.md LICENSE ./
COPY dispatcher dispatcher
COPY spark_sink spark_sink
COPY deploy/image/compile_kernels.py /tmp/compile_kernels.py
# The kernels are compiled for this processor; `entrypoint.sh` copies them into a folder that the daemon can write.
RUN pip install --no-deps --no-build-isolation . \
    && NUMBA_CACHE_DIR=/opt/binlog-dispatcher/kernels python /tmp/compile_kernels.py daemon
COPY deploy/image/entrypoint.sh /opt/binlog-dispatcher/bin/entrypoint.sh

FROM base AS build-mirror
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-21-jre-headless && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/binlog-dispatcher
WORKDIR /src
COPY deploy/spark.lock deploy/spark.lock
RUN pip install --require-hashes --no-deps -r deploy/spark.lock
COPY pyproject.toml README.md LICENSE ./
COPY dispatcher dispatcher
COPY spark_sink spark_sink
COPY deploy/image/compile_kernels.py /tmp/compile_kernels.py
# The kernels of the mirror, compiled as in the daemon's image: each pod of an executor starts with them.
RUN pip install --no-deps --no-build-isolation . \
    && NUMBA_CACHE_DIR=/opt/binlog-dispatcher/kernels python -P /tmp/compile_kernels.py mirror
# The jars of Delta and of S3 are linked into Spark's folder of jars: so each driver and executor finds them, however it is
# started.
RUN BINLOG_DISPATCHER_CACHE=/opt/binlog-dispatcher/cache python -P -m spark_sink.jars --s3 \
    && ln -s "$(python -P -c 'import pyspark; print(pyspark.__path__[0])')" /opt/binlog-dispatcher/spark \
    && find /opt/binlog-dispatcher/cache -name '*.jar' -exec ln -s {} /opt/binlog-dispatcher/spark/jars/ ';' \
    && ln -s "$(python -P -c 'import spark_sink; print(spark_sink.__path__[0])')/__main__.py" /opt/binlog-dispatcher/mirror.py
COPY deploy/image/mirror-entrypoint.sh /opt/binlog-dispatcher/bin/mirror-entrypoint.sh

FROM base AS mirror
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-21-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 8085 --home-dir /var/lib/binlog-mirror --create-home binlog-mirror \
    && install -d -o binlog-mirror /data
COPY --from=build-mirror /opt/binlog-dispatcher /opt/binlog-dispatcher
ENV BINLOG_DISPATCHER_CACHE=/opt/binlog-dispatcher/cache \
    SPARK_HOME=/opt/binlog-dispatcher/spark \
    PYSPARK_PYTHON=/opt/binlog-dispatcher/bin/python \
    NUMBA_CACHE_DIR=/tmp/kernels
USER 8085:8085
WORKDIR /var/lib/binlog-mirror
VOLUME /data
EXPOSE 9464
HEALTHCHECK NONE
ENTRYPOINT ["/usr/bin/tini", "--", "sh", "/opt/binlog-dispatcher/bin/mirror-entrypoint.sh"]
CMD ["run", "--config", "/etc/binlog-mirror/mirror.yaml"]

FROM base AS daemon
RUN useradd --system --uid 8085 --home-dir /var/lib/binlog-dispatcher --create-home binlog-dispatcher
COPY --from=build-daemon /opt/binlog-dispatcher /opt/binlog-dispatcher
ENV NUMBA_CACHE_DIR=/var/lib/binlog-dispatcher/kernels
USER 8085:8085
WORKDIR /var/lib/binlog-dispatcher
VOLUME /var/lib/binlog-dispatcher
EXPOSE 8085
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8085/livez', timeout=2)"]
ENTRYPOINT ["sh", "/opt/binlog-dispatcher/bin/entrypoint.sh"]
CMD ["run", "--config", "/etc/binlog-dispatcher/dispatcher.yaml"]
