package binlogdispatcher;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermission;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
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
 * rename, and `chmod` for each new file. A commit to a Delta table takes eight such processes, and each costs a fork of
 * the driver. These classes ask the system through java.nio instead. Everything else, such as the checksum files, is
 * Hadoop's own.
 */
public final class LocalFiles {
    private LocalFiles() {}

    /** The class for `fs.file.impl`. */
    public static final class ForFileSystem extends LocalFileSystem {
        public ForFileSystem() {
            super(new Raw());
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
