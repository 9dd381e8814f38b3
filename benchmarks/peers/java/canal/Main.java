import com.alibaba.otter.canal.parse.driver.mysql.MysqlConnector;
import com.alibaba.otter.canal.parse.driver.mysql.MysqlUpdateExecutor;
import com.alibaba.otter.canal.parse.driver.mysql.packets.HeaderPacket;
import com.alibaba.otter.canal.parse.driver.mysql.packets.client.BinlogDumpCommandPacket;
import com.alibaba.otter.canal.parse.driver.mysql.utils.PacketManager;
import com.alibaba.otter.canal.parse.inbound.mysql.dbsync.DirectLogFetcher;
import com.sun.management.OperatingSystemMXBean;
import com.taobao.tddl.dbsync.binlog.LogContext;
import com.taobao.tddl.dbsync.binlog.LogDecoder;
import com.taobao.tddl.dbsync.binlog.LogEvent;
import com.taobao.tddl.dbsync.binlog.event.FormatDescriptionLogEvent;
import com.taobao.tddl.dbsync.binlog.event.RowsLogBuffer;
import com.taobao.tddl.dbsync.binlog.event.TableMapLogEvent.ColumnInfo;
import com.taobao.tddl.dbsync.binlog.event.WriteRowsLogEvent;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.BitSet;

/** Decodes each cell with Canal's fetcher and decoder: HOST PORT USER PASSWORD FILE ROWS. Prints what it took as JSON. */
public final class Main {
    private static final int SERVER_ID = 0xB005;
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] arguments) throws Exception {
        InetSocketAddress address = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
        MysqlConnector connector = new MysqlConnector(address, arguments[2], arguments[3]);
        connector.connect();
        new MysqlUpdateExecutor(connector).update("SET @master_binlog_checksum = @@GLOBAL.binlog_checksum");
        requestDump(connector, arguments[4]);
        DirectLogFetcher fetcher = new DirectLogFetcher(1 << 20);
        fetcher.start(connector.getChannel());
        LogDecoder decoder = new LogDecoder(LogEvent.UNKNOWN_EVENT, LogEvent.ENUM_END_EVENT);
        LogContext context = new LogContext();
        context.setFormatDescription(new FormatDescriptionLogEvent(4, LogEvent.BINLOG_CHECKSUM_ALG_CRC32));
        long wanted = Long.parseLong(arguments[5]);
        long rows = 0;
        long startedNs = System.nanoTime();
        long cpuNs = SYSTEM.getProcessCpuTime();
        while (rows < wanted && fetcher.fetch()) {
            LogEvent event = decoder.decode(fetcher, context);
            if (event instanceof WriteRowsLogEvent) {
                rows += decodeRows((WriteRowsLogEvent) event);
            }
        }
        double seconds = (System.nanoTime() - startedNs) / 1e9;
        double cpuSeconds = (SYSTEM.getProcessCpuTime() - cpuNs) / 1e9;
        System.out.printf("{\"rows\": %d, \"seconds\": %s, \"cpu_seconds\": %s}%n", rows, seconds, cpuSeconds);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void requestDump(MysqlConnector connector, String file) throws Exception {
        BinlogDumpCommandPacket dump = new BinlogDumpCommandPacket();
        dump.binlogFileName = file;
        dump.binlogPosition = 4;
        dump.slaveServerId = SERVER_ID;
        byte[] body = dump.toBytes();
        HeaderPacket header = new HeaderPacket();
        header.setPacketBodyLength(body.length);
        header.setPacketSequenceNumber((byte) 0);
        PacketManager.writePkg(connector.getChannel(), header.toBytes(), body);
    }

    private static long decodeRows(WriteRowsLogEvent event) {
        RowsLogBuffer buffer = event.getRowsBuf(StandardCharsets.UTF_8);
        BitSet present = event.getColumns();
        ColumnInfo[] columns = event.getTable().getColumnInfo();
        long rows = 0;
        while (buffer.nextOneRow(present)) {
            for (int i = 0; i < columns.length; i++) {
                if (present.get(i)) {
                    buffer.nextValue(columns[i].name, i, columns[i].type, columns[i].meta);
                    buffer.getValue();
                }
            }
            rows++;
        }
        return rows;
    }
}
