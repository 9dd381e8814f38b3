import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;

/**
 * Runs Debezium's engine with the properties on the standard input, which end at an empty line, until it is killed. Prints
 * a line for each event: its destination, a tab, its value as JSON; "batch" after the events of a batch, and "stored" when
 * the engine has stored the offset of the batch. After both it waits for a line, unless the property `reader.waits` is
 * `false`.
 */
public final class DebeziumReader {
    private static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private static boolean waits = true;

    public static void main(String[] arguments) throws Exception {
        StringBuilder given = new StringBuilder();
        for (String line = IN.readLine(); !line.isEmpty(); line = IN.readLine()) {
            given.append(line).append('\n');
        }
        Properties settings = new Properties();
        settings.load(new StringReader(given.toString()));
        waits = !"false".equals(settings.remove("reader.waits"));
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(settings)
                .using((success, message, error) -> {
                    System.err.println(message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                    Runtime.getRuntime().halt(1);
                })
                .notifying(DebeziumReader::handle)
                .build();
        engine.run();
    }

    private static void handle(
            List<ChangeEvent<String, String>> events,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer)
            throws InterruptedException {
        for (ChangeEvent<String, String> event : events) {
            OUT.println(event.destination() + "\t" + event.value());
        }
        await("batch");
        for (ChangeEvent<String, String> event : events) {
            committer.markProcessed(event);
        }
        committer.markBatchFinished();
        await("stored");
    }

    private static void await(String done) {
        OUT.println(done);
        OUT.flush();
        try {
            if (waits) {
                IN.readLine();
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
