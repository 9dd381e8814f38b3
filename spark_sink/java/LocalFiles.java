package binlogdispatcher;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermission;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system without other programs.
 *
 * <p>Without its native library, which Spark's package does not contain, Hadoop runs `readlink` for each name of a
 * rename, and `chmod` for each new file. A commit to a Delta table starts some twenty of them, and each costs a fork of
 * the driver. These classes ask the system through java.nio instead. Everything else, such as the checksum files, is
 * Hadoop's own.
 */
public final class LocalFiles {
    private static final String DELTA_LOG = "_delta_log";

    private LocalFiles() {}

    /** The class for `fs.file.impl`. */
    public static final class ForFileSystem extends LocalFileSystem {
        public ForFileSystem() {
            super(new Raw());
        }

        /**
         * Returns the files of Delta's logs without asking for their attributes.
         *
         * <p>Each transaction lists the whole log of its table, and then uses the files after the newest checkpoint.
         * Hadoop asks for the attributes of each file with four calls of the system, so a log of 3,000 commits took a
         * tenth of a second.
         */
        @Override
        public FileStatus[] listStatus(Path folder) throws IOException {
            String[] names = folder.getName().equals(DELTA_LOG) ? pathToFile(folder).list() : null;
            if (names == null) { // another folder, a file, or nothing
                return super.listStatus(folder);
            }
            Path parent = makeQualified(folder);
            List<FileStatus> found = new ArrayList<>(names.length);
            for (String name : names) {
                Path path = new Path(parent, name);
                if (!isChecksumFile(path)) {
                    found.add(new Unread(getRawFileSystem(), path));
                }
            }
            return found.toArray(new FileStatus[0]);
        }
    }

    /** A file whose attributes are read when they are needed. */
    private static final class Unread extends FileStatus {
        private final transient FileSystem system;
        private transient FileStatus read;

        Unread(FileSystem system, Path path) {
            super(0, false, 0, 0, 0, path);
            this.system = system;
        }

        private synchronized FileStatus read() {
            if (read == null) {
                try {
                    read = system.getFileStatus(getPath());
                } catch (IOException error) { // such as a file that was deleted after the listing
                    throw new UncheckedIOException(error);
                }
            }
            return read;
        }

        @Override
        public long getLen() {
            return read().getLen();
        }

        @Override
        public boolean isDirectory() {
            return read().isDirectory();
        }

        @Override
        public boolean isFile() {
            return read().isFile();
        }

        @Override
        public boolean isSymlink() {
            return read().isSymlink();
        }

        @Override
        public long getBlockSize() {
            return read().getBlockSize();
        }

        @Override
        public short getReplication() {
            return read().getReplication();
        }

        @Override
        public long getModificationTime() {
            return read().getModificationTime();
        }

        @Override
        public long getAccessTime() {
            return read().getAccessTime();
        }

        @Override
        public FsPermission getPermission() {
            return read().getPermission();
        }

        @Override
        public String getOwner() {
            return read().getOwner();
        }

        @Override
        public String getGroup() {
            return read().getGroup();
        }

        private Object writeReplace() {
            return read();
        }
    }

    /** The class for `fs.AbstractFileSystem.file.impl`. */
    public static final class ForFileContext extends ChecksumFs {
        public ForFileContext(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(new RawForFileContext(conf));
        }
    }

    /** Does what `org.apache.hadoop.fs.local.RawLocalFs` does. That class chooses its file system itself. */
    private static final class RawForFileContext extends DelegateToFileSystem {
        RawForFileContext(Configuration conf) throws IOException, URISyntaxException {
            super(FsConstants.LOCAL_FS_URI, new Raw(), conf, FsConstants.LOCAL_FS_URI.getScheme(), false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1; // no port
        }

        @Override
        public FsServerDefaults getServerDefaults(Path path) throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        @Override
        public boolean isValidName(String name) {
            return true;
        }
    }

    private static final class Raw extends RawLocalFileSystem {
        /** The permissions by the bits of a mode, from the lowest bit on. */
        private static final PosixFilePermission[] BY_BIT = {
            PosixFilePermission.OTHERS_EXECUTE, PosixFilePermission.OTHERS_WRITE, PosixFilePermission.OTHERS_READ,
            PosixFilePermission.GROUP_EXECUTE, PosixFilePermission.GROUP_WRITE, PosixFilePermission.GROUP_READ,
            PosixFilePermission.OWNER_EXECUTE, PosixFilePermission.OWNER_WRITE, PosixFilePermission.OWNER_READ,
        };

        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            boolean isLink = Files.isSymbolicLink(pathToFile(path).toPath());
            return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
        }

        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            int mode = permission.toShort();
            if (mode >> BY_BIT.length != 0) { // the sticky bit, which java.nio does not know
                super.setPermission(path, permission);
                return;
            }
            Set<PosixFilePermission> permissions = EnumSet.noneOf(PosixFilePermission.class);
            for (int bit = 0; bit < BY_BIT.length; bit++) {
                if ((mode >> bit & 1) != 0) {
                    permissions.add(BY_BIT[bit]);
                }
            }
            try {
                Files.setPosixFilePermissions(pathToFile(path).toPath(), permissions);
            } catch (UnsupportedOperationException error) { // not a POSIX file system
                super.setPermission(path, permission);
            }
        }
    }
}
