#!/bin/sh
# Entry point of the mirror's image. On Kubernetes Spark runs it with `driver …` or `executor …`, and with its settings in
# the environment; any other argument is a command of the mirror.
set -eu
# The image holds compiled kernels and may be read-only; numba needs them in a folder that it can write.
mkdir -p "$NUMBA_CACHE_DIR"
for release in "${SPARK_HOME%/*}"/kernels/*; do
    [ -e "$release" ] || continue
    [ -e "$NUMBA_CACHE_DIR/${release##*/}" ] || cp -R --preserve=timestamps "$release" "$NUMBA_CACHE_DIR/"
done
case "${1:-}" in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    set --
    # SPARK_JAVA_OPT_0, _1, …: one option of the JVM each.
    number=0
    while eval "option=\${SPARK_JAVA_OPT_$number-}" && [ -n "$option" ]; do
        set -- "$@" "$option"
        number=$((number + 1))
    done
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_EXTRA_CLASSPATH:+$SPARK_EXTRA_CLASSPATH:}$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec python -m spark_sink "$@"
    ;;
esac
