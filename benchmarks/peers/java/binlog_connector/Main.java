import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;

/** Reads rows with mysql-binlog-connector-java: HOST PORT USER PASSWORD FILE ROWS. Prints what it took as JSON. */
public final class Main {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static long rows;
    private static long startedNs;
    private static long cpuNs;

    public static void main(String[] arguments) throws Exception {
        BinaryLogClient client = new BinaryLogClient(
                arguments[0], Integer.parseInt(arguments[1]), arguments[2], arguments[3]);
        client.setServerId(0xB004);
        client.setBinlogFilename(arguments[4]);
        client.setBinlogPosition(4);
        client.setKeepAlive(false);
        long wanted = Long.parseLong(arguments[5]);
        client.registerEventListener(event -> {
            if (event.getData() instanceof WriteRowsEventData) {
                if (rows == 0) {
                    startedNs = System.nanoTime();
                    cpuNs = SYSTEM.getProcessCpuTime();
                }
                rows += ((WriteRowsEventData) event.getData()).getRows().size();
                if (rows >= wanted) {
                    print();
                    // The connection waits for more of the log; ending the process ends it.
                    Runtime.getRuntime().halt(0);
                }
            }
        });
        client.connect();
    }

    private static void print() {
        double seconds = (System.nanoTime() - startedNs) / 1e9;
        double cpuSeconds = (SYSTEM.getProcessCpuTime() - cpuNs) / 1e9;
        System.out.printf("{\"rows\": %d, \"seconds\": %s, \"cpu_seconds\": %s}%n", rows, seconds, cpuSeconds);
        System.out.flush();
    }
}
