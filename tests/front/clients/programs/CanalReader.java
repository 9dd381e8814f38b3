import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import com.alibaba.otter.canal.common.AbstractCanalLifeCycle;
import com.alibaba.otter.canal.common.alarm.CanalAlarmHandler;
import com.alibaba.otter.canal.filter.aviater.AviaterRegexFilter;
import com.alibaba.otter.canal.parse.inbound.mysql.MysqlEventParser;
import com.alibaba.otter.canal.parse.index.MemoryLogPositionManager;
import com.alibaba.otter.canal.parse.support.AuthenticationInfo;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.position.EntryPosition;
import com.alibaba.otter.canal.sink.CanalEventSink;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.slf4j.LoggerFactory;

/**
 * Reads with Canal's MysqlEventParser, and prints the lines of tests.front.clients.lines. Its settings are properties on the
 * standard input; it runs until it is killed.
 */
public final class CanalReader extends AbstractCanalLifeCycle implements CanalEventSink<List<CanalEntry.Entry>> {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private String gtid = "";
    private boolean inside;

    public static void main(String[] arguments) throws Exception {
        ((Logger) LoggerFactory.getLogger("ROOT")).setLevel(Level.OFF);
        Properties settings = new Properties();
        settings.load(System.in);
        AuthenticationInfo account = new AuthenticationInfo(
                new InetSocketAddress(settings.getProperty("host"), Integer.parseInt(settings.getProperty("port"))),
                settings.getProperty("user"),
                settings.getProperty("password"));
        EntryPosition start =
                new EntryPosition(settings.getProperty("file"), Long.parseLong(settings.getProperty("offset")));
        MysqlEventParser parser = new MysqlEventParser();
        if (settings.containsKey("gtids")) {
            start.setGtid(settings.getProperty("gtids"));
            parser.setIsGTIDMode(true);
        }
        parser.setDestination("judge");
        parser.setSlaveId(Long.parseLong(settings.getProperty("server_id")));
        parser.setMasterInfo(account);
        parser.setMasterPosition(start);
        parser.setConnectionCharset("UTF-8");
        parser.setDetectingEnable(false);
        parser.setEnableTsdb(false);
        parser.setParallel(false);
        parser.setEventFilter(new AviaterRegexFilter(settings.getProperty("tables")));
        MemoryLogPositionManager positions = new MemoryLogPositionManager();
        positions.start();
        parser.setLogPositionManager(positions);
        parser.setAlarmHandler(new Alarm());
        parser.setEventSink(new CanalReader());
        parser.start();
        Thread.currentThread().join();
    }

    /** Ends the program at the first error: Canal itself would try again. */
    private static final class Alarm extends AbstractCanalLifeCycle implements CanalAlarmHandler {
        @Override
        public void sendAlarm(String destination, String message) {
            System.err.println(message);
            Runtime.getRuntime().halt(1);
        }
    }

    @Override
    public boolean sink(List<CanalEntry.Entry> entries, InetSocketAddress address, String destination) {
        try {
            for (CanalEntry.Entry entry : entries) {
                take(entry);
            }
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        OUT.flush();
        return true;
    }

    @Override
    public void interrupt() {}

    private void take(CanalEntry.Entry entry) throws Exception {
        CanalEntry.Header header = entry.getHeader();
        long offset = header.getLogfileOffset() + header.getEventLength();
        if (!header.getGtid().isEmpty()) {
            gtid = header.getGtid();
        }
        if (entry.getEntryType() == CanalEntry.EntryType.TRANSACTIONBEGIN) {
            inside = true;
        } else if (entry.getEntryType() == CanalEntry.EntryType.TRANSACTIONEND) {
            end(header, offset);
        } else if (entry.getEntryType() == CanalEntry.EntryType.ROWDATA) {
            CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(entry.getStoreValue());
            if (change.getIsDdl() || change.getEventType() == CanalEntry.EventType.QUERY) {
                OUT.printf("[\"ddl\", %s, %s, %d]%n", quoted(change.getDdlSchemaName()), quoted(change.getSql()), offset);
                if (!inside) {
                    end(header, offset);
                }
            } else {
                for (CanalEntry.RowData row : change.getRowDatasList()) {
                    show(header, change.getEventType(), row, offset);
                }
            }
        }
    }

    private void end(CanalEntry.Header header, long offset) {
        inside = false;
        OUT.printf("[\"end\", %s, %d, %s]%n", quoted(header.getLogfileName()), offset, quoted(gtid));
    }

    private static void show(CanalEntry.Header header, CanalEntry.EventType type, CanalEntry.RowData row, long offset) {
        List<CanalEntry.Column> before = row.getBeforeColumnsList();
        List<CanalEntry.Column> after = row.getAfterColumnsList();
        String key = (after.isEmpty() ? before : after).get(0).getValue();
        OUT.printf(
                "[\"row\", %s, %s, %s, %s, %s, %s, %d]%n",
                quoted(header.getSchemaName()), quoted(header.getTableName()), quoted(type.name().toLowerCase()), key,
                image(before), image(after), offset);
    }

    private static String image(List<CanalEntry.Column> columns) {
        if (columns.isEmpty()) {
            return "null";
        }
        StringBuilder text = new StringBuilder();
        for (CanalEntry.Column column : columns) {
            text.append(text.length() == 0 ? "" : ", ").append(column.getName()).append('=');
            text.append(column.getIsNull() ? "NULL" : shortened(column.getValue()));
        }
        return quoted(text.toString());
    }

    private static String shortened(String value) {
        if (value.length() <= 200) {
            return value;
        }
        try {
            byte[] digest = MessageDigest.getInstance("SHA-1").digest(value.getBytes(StandardCharsets.UTF_8));
            return value.length() + ":" + Arrays.toString(digest);
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
