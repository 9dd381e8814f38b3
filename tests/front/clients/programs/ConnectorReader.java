import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.Event;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.EventHeaderV4;
import com.github.shyiko.mysql.binlog.event.GtidEventData;
import com.github.shyiko.mysql.binlog.event.MariadbGtidEventData;
import com.github.shyiko.mysql.binlog.event.QueryEventData;
import com.github.shyiko.mysql.binlog.event.TableMapEventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.XidEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer;
import com.github.shyiko.mysql.binlog.network.SSLMode;
import java.io.PrintStream;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/**
 * Reads with Debezium's mysql-binlog-connector-java, and prints the lines of tests.front.clients.lines. Its settings are
 * properties on the standard input; it runs until it is killed.
 */
public final class ConnectorReader {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final Map<Long, TableMapEventData> tables = new HashMap<>();
    private final BinaryLogClient client;
    private String gtid = "";
    private boolean inside;

    private ConnectorReader(Properties settings) {
        client = new BinaryLogClient(
                settings.getProperty("host"),
                Integer.parseInt(settings.getProperty("port")),
                settings.getProperty("user"),
                settings.getProperty("password"));
        client.setServerId(Long.parseLong(settings.getProperty("server_id")));
        client.setSSLMode(settings.getProperty("tls").equals("true") ? SSLMode.REQUIRED : SSLMode.DISABLED);
        client.setBinlogFilename(settings.getProperty("file"));
        client.setBinlogPosition(Long.parseLong(settings.getProperty("offset")));
        if (settings.containsKey("gtids")) {
            client.setGtidSet(settings.getProperty("gtids"));
        }
        client.setKeepAlive(false);
        client.setHeartbeatInterval(5000);
        EventDeserializer deserializer = new EventDeserializer();
        deserializer.setCompatibilityMode(
                EventDeserializer.CompatibilityMode.DATE_AND_TIME_AS_LONG_MICRO,
                EventDeserializer.CompatibilityMode.CHAR_AND_BINARY_AS_BYTE_ARRAY);
        client.setEventDeserializer(deserializer);
        client.registerEventListener(this::handle);
        client.registerLifecycleListener(new BinaryLogClient.AbstractLifecycleListener() {
            @Override
            public void onCommunicationFailure(BinaryLogClient failed, Exception error) {
                end(error);
            }

            @Override
            public void onEventDeserializationFailure(BinaryLogClient failed, Exception error) {
                end(error);
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.load(System.in);
        new ConnectorReader(settings).client.connect();
    }

    private static void end(Exception error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    private void handle(Event event) {
        EventData data = event.getData();
        long offset = ((EventHeaderV4) event.getHeader()).getNextPosition();
        if (data instanceof GtidEventData) {
            gtid = ((GtidEventData) data).getMySqlGtid().toString();
        } else if (data instanceof MariadbGtidEventData) {
            MariadbGtidEventData read = (MariadbGtidEventData) data;
            long server = event.getHeader() instanceof EventHeaderV4 ? ((EventHeaderV4) event.getHeader()).getServerId() : 0;
            gtid = read.getDomainId() + "-" + server + "-" + read.getSequence();
        } else if (data instanceof TableMapEventData) {
            tables.put(((TableMapEventData) data).getTableId(), (TableMapEventData) data);
        } else if (data instanceof WriteRowsEventData) {
            WriteRowsEventData rows = (WriteRowsEventData) data;
            rows.getRows().forEach(row -> show(rows.getTableId(), "insert", null, row, offset));
        } else if (data instanceof DeleteRowsEventData) {
            DeleteRowsEventData rows = (DeleteRowsEventData) data;
            rows.getRows().forEach(row -> show(rows.getTableId(), "delete", row, null, offset));
        } else if (data instanceof UpdateRowsEventData) {
            UpdateRowsEventData rows = (UpdateRowsEventData) data;
            rows.getRows().forEach(row -> show(rows.getTableId(), "update", row.getKey(), row.getValue(), offset));
        } else if (data instanceof XidEventData) {
            end(offset);
        } else if (data instanceof QueryEventData) {
            executed((QueryEventData) data, offset);
        }
        OUT.flush();
    }

    private void executed(QueryEventData query, long offset) {
        if (query.getSql().equals("BEGIN")) {
            inside = true;
        } else if (query.getSql().equals("COMMIT")) {
            end(offset);
        } else {
            OUT.printf("[\"ddl\", %s, %s, %d]%n", quoted(query.getDatabase()), quoted(query.getSql()), offset);
            if (!inside) {
                end(offset);
            }
        }
    }

    /** The file is the client's own; the offset is that of the event, because the client moves its own afterwards. */
    private void end(long offset) {
        inside = false;
        OUT.printf("[\"end\", %s, %d, %s]%n", quoted(client.getBinlogFilename()), offset, quoted(gtid));
    }

    private void show(long tableId, String op, Serializable[] before, Serializable[] after, long offset) {
        TableMapEventData table = tables.get(tableId);
        Serializable key = (after == null ? before : after)[0];
        OUT.printf(
                "[\"row\", %s, %s, \"%s\", %s, %s, %s, %d]%n",
                quoted(table.getDatabase()), quoted(table.getTable()), op, key, image(before), image(after), offset);
    }

    private static String image(Serializable[] values) {
        if (values == null) {
            return "null";
        }
        StringBuilder text = new StringBuilder();
        for (Serializable value : values) {
            text.append(text.length() == 0 ? "" : ", ").append(shortened(value));
        }
        return quoted(text.toString());
    }

    private static String shortened(Serializable value) {
        if (!(value instanceof byte[])) {
            return String.valueOf(value);
        }
        byte[] bytes = (byte[]) value;
        if (bytes.length <= 200) {
            return Arrays.toString(bytes);
        }
        try {
            return bytes.length + ":" + Arrays.toString(MessageDigest.getInstance("SHA-1").digest(bytes));
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\') {
                quoted.append('\\').append(one);
            } else if (one < ' ') {
                quoted.append(String.format("\\u%04x", (int) one));
            } else {
                quoted.append(one);
            }
        }
        return quoted.append('"').toString();
    }
}
