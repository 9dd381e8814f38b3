import com.sun.management.OperatingSystemMXBean;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.ObjectOutputStream;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Properties;

/** Reads rows as JSON with Debezium's engine: HOST PORT USER PASSWORD FILE ROWS. Prints what it took as JSON. */
public final class Main {
    private static final String NAME = "bench";
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static Path offsets;
    private static long wanted;
    private static long rows;
    private static long startedNs;
    private static long cpuNs;

    public static void main(String[] arguments) throws Exception {
        offsets = Files.createTempFile("debezium", ".offsets");
        writeOffset(arguments[4]);
        wanted = Long.parseLong(arguments[5]);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(settings(arguments))
                .using((success, message, error) -> {
                    Throwable cause = error;
                    while (cause != null && cause.getCause() != null) {
                        cause = cause.getCause();
                    }
                    System.err.println(message + ": " + cause);
                    Runtime.getRuntime().halt(1);
                })
                .notifying(Main::handle)
                .build();
        engine.run();
    }

    private static void handle(
            List<ChangeEvent<String, String>> events,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer)
            throws InterruptedException {
        for (ChangeEvent<String, String> event : events) {
            if (event.destination().endsWith(".t")) {
                if (rows == 0) {
                    startedNs = System.nanoTime();
                    cpuNs = SYSTEM.getProcessCpuTime();
                }
                rows++;
            }
            committer.markProcessed(event);
        }
        committer.markBatchFinished();
        if (rows >= wanted) {
            double seconds = (System.nanoTime() - startedNs) / 1e9;
            double cpuSeconds = (SYSTEM.getProcessCpuTime() - cpuNs) / 1e9;
            System.out.printf("{\"rows\": %d, \"seconds\": %s, \"cpu_seconds\": %s}%n", rows, seconds, cpuSeconds);
            System.out.flush();
            offsets.toFile().delete();
            Runtime.getRuntime().halt(0);
        }
    }

    /** The engine continues where its stored offset says: here, at the beginning of the log. */
    private static void writeOffset(String file) throws Exception {
        String key = "[\"" + NAME + "\",{\"server\":\"" + NAME + "\"}]";
        // On a server with GTIDs the engine needs the set before that file.
        String gtids = System.getenv("GTID_BEFORE");
        String value = "{\"file\":\"" + file + "\",\"pos\":4,\"gtids\":\"" + gtids + "\"}";
        HashMap<byte[], byte[]> stored = new HashMap<>();
        stored.put(key.getBytes(StandardCharsets.UTF_8), value.getBytes(StandardCharsets.UTF_8));
        try (OutputStream output = Files.newOutputStream(offsets);
                ObjectOutputStream objects = new ObjectOutputStream(output)) {
            objects.writeObject(stored);
        }
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.setProperty("name", NAME);
        settings.setProperty("topic.prefix", NAME);
        settings.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        settings.setProperty("offset.storage.file.filename", offsets.toString());
        settings.setProperty("offset.flush.interval.ms", "60000");
        settings.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        // The tables' definitions are taken from the server, and changes from the stored offset on.
        settings.setProperty("snapshot.mode", "recovery");
        settings.setProperty("snapshot.locking.mode", "none");
        settings.setProperty("database.hostname", arguments[0]);
        settings.setProperty("database.port", arguments[1]);
        settings.setProperty("database.user", arguments[2]);
        settings.setProperty("database.password", arguments[3]);
        settings.setProperty("database.server.id", "45062");
        settings.setProperty("database.ssl.mode", "disabled");
        settings.setProperty("driver.allowPublicKeyRetrieval", "true");
        settings.setProperty("database.include.list", "bench_a,bench_b");
        settings.setProperty("include.schema.changes", "false");
        // Without the schema in each message, as its documentation advises where none is needed.
        settings.setProperty("converter.schemas.enable", "false");
        settings.setProperty("key.converter.schemas.enable", "false");
        settings.setProperty("value.converter.schemas.enable", "false");
        settings.setProperty("max.batch.size", "8192");
        settings.setProperty("max.queue.size", "32768");
        return settings;
    }
}
