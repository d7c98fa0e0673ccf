package envsync

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/internal/digest"
)

// DescribeHost returns a description of this host as JSON, which ReadFacts parses. It
// fails unless ~/.plx belongs to the user and is writable. It creates the
// identifier of the file system, ~/.plx/fsid, if there is none.
func DescribeHost() (json.RawMessage, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	name, err := ownFolder(filepath.Join(home, ".plx"))
	if err != nil {
		return nil, err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	text := func(field [65]byte) string { return unix.ByteSliceToString(field[:]) }
	f := Facts{Platform: PlatformOf(text(u.Sysname), text(u.Machine)), HostName: text(u.Nodename), FileSystem: name}
	f.BootID, _ = firstLine(bootFile) // a container may hide the file; BootID is then empty
	if words := strings.Fields(os.Getenv("SSH_CONNECTION")); len(words) == 4 {
		f.ServerAddr, _, _ = strings.Cut(words[2], "%") // strip the IPv6 zone ("%eth0"), which means nothing on other hosts
	}
	return json.Marshal(f)
}

const bootFile = "/proc/sys/kernel/random/boot_id"

// ownFolder checks that ~/.plx belongs to the user and is writable, and
// returns the identifier of its file system, which it creates if there is
// none.
func ownFolder(plx string) (string, error) {
	var is unix.Stat_t
	if err := unix.Stat(plx, &is); err != nil {
		return "", err
	}
	if is.Uid != uint32(os.Geteuid()) {
		return "", fmt.Errorf("%s is not owned by this user: rename it, then plx makes its own", plx)
	}
	for _, folder := range []string{plx, filepath.Join(plx, "blobs")} {
		if err := os.Chmod(folder, 0o700); err != nil {
			return "", err
		}
	}
	file := filepath.Join(plx, "fsid")
	// Several processes may find no identifier at the same time. The first one
	// to create the link wins, and all of them read its identifier below.
	name, _ := firstLine(file)
	fresh := name == ""
	if fresh {
		id := make([]byte, 16)
		rand.Read(id) // rand.Read never returns an error
		name = hex.EncodeToString(id)
	}
	probe := filepath.Join(plx, ".fsid."+rand.Text())
	if err := os.WriteFile(probe, []byte(name+"\n"), 0o600); err != nil {
		return "", errors.Join(err, os.RemoveAll(probe))
	}
	defer os.RemoveAll(probe) // the removal cannot fail, because the file was just written
	if !fresh {
		return name, nil
	}
	if info, err := os.Lstat(file); err == nil && info.Size() == 0 {
		_ = os.Remove(file) // A full disk has left an empty file. An error does not matter, because another process may already have removed the file.
	}
	if err := os.Link(probe, file); err != nil && !errors.Is(err, os.ErrExist) {
		if err := os.Rename(probe, file); err != nil { // the file system has no hard links, so rename the file instead
			return "", err
		}
	}
	return firstLine(file)
}

// firstLine returns the first line of a file. An empty first line is an error.
func firstLine(path string) (string, error) {
	text, err := bounded.ReadFile(path, bounded.Words)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return line, nil
}

// CachedBlobs checks which blobs are stored on this host. wanted maps the
// SHA-256 of each blob to its size in bytes. sums are the blobs that are
// present and intact, damaged those with wrong content. CachedBlobs computes
// the hash of a blob only if its size, times or inode have changed, after a
// reboot, and once a day. It updates the modification time of the blobs, so
// that they count as used.
func CachedBlobs(wanted map[string]int64) (sums, damaged []string) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, nil
	}
	for sum, size := range wanted {
		if !isSum(sum) {
			continue
		}
		switch err := verify(home, sum, size); {
		case err == nil:
			sums = append(sums, sum)
		case errors.Is(err, errDamaged):
			damaged = append(damaged, sum)
		}
	}
	return sums, damaged
}

// OpenBlob opens the blob with the given SHA-256 on this host for reading.
func OpenBlob(sum string) (*os.File, error) {
	home, err := os.UserHomeDir()
	if err == nil && !isSum(sum) {
		err = fmt.Errorf("%q is not the SHA-256 of a blob", sum)
	}
	if err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(home, BlobPath(sum)))
}

// isSum reports whether s is a SHA-256 in hexadecimal digits, and so can be
// the name of a blob.
func isSum(s string) bool {
	sum, err := hex.DecodeString(s)
	return err == nil && len(sum) == sha256.Size
}

// StoreBlob flushes file to disk and moves it to the folder of blobs. sum is
// the SHA-256 of its content. If another process stores the same blob at the
// same time, StoreBlob returns nil provided that the blob is there.
func StoreBlob(file, sum string, size int64) error {
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	err = settle(home, file, sum, size)
	if errors.Is(err, os.ErrNotExist) && verify(home, sum, size) == nil {
		return nil
	}
	return err
}

func settle(home, file, sum string, size int64) error {
	if err := makeDurable(file); err != nil {
		return err
	}
	if verify(home, sum, size) == nil { // A blob may be a program that is running, so an intact one is not replaced.
		return os.Remove(file)
	}
	blob := filepath.Join(home, BlobPath(sum))
	if info, err := os.Lstat(blob); err == nil && !info.Mode().IsRegular() {
		if err := os.RemoveAll(blob); err != nil {
			return err
		}
	}
	if err := os.Rename(file, blob); err != nil {
		return err
	}
	if folder, err := os.Open(filepath.Dir(blob)); err == nil {
		_ = folder.Sync() // an error is ignored, because some file systems cannot sync a folder
		folder.Close()    // the folder was only read, so an error of Close does not matter
	}
	if as, err := identity(blob); err == nil {
		writeRecord(home, sum, as)
	}
	return nil
}

// makeDurable makes a file executable, sets its modification time to now, and
// flushes it to disk.
func makeDurable(file string) error {
	now := time.Now()
	if err := errors.Join(os.Chmod(file, 0o700), os.Chtimes(file, now, now)); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// recordPath returns the path of the file that records that the blob sum was
// verified since this host was booted. The file contains the identity (inode,
// size and times) that the blob had then. The result is "" if the host's boot
// ID is unknown. Hosts that share a home folder have separate files, because
// one host's page cache says nothing about what another host reads.
func recordPath(home, sum string) string {
	boot, err := firstLine(bootFile)
	if err != nil || strings.Trim(boot, "0123456789abcdef-") != "" {
		return ""
	}
	return filepath.Join(home, ".plx/verified", boot+"."+sum)
}

const (
	useInterval = time.Hour      // a use of a blob updates its modification time only if that time is older than useInterval
	verifiedFor = 24 * time.Hour // a verified blob with unchanged inode, size and times is not hashed again for this long
)

var errDamaged = errors.New("it is damaged")

// verify returns an error unless the blob sum exists below home, has size bytes
// and its content has that SHA-256.
func verify(home, sum string, size int64) error {
	blob := filepath.Join(home, BlobPath(sum))
	info, err := os.Lstat(blob)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != size {
		return fmt.Errorf("it has another size or is not a regular file: %w", errDamaged)
	}
	if info.Mode().Perm() != 0o700 {
		err = os.Chmod(blob, 0o700)
	}
	if now := time.Now(); now.Sub(info.ModTime()) > useInterval {
		err = errors.Join(err, os.Chtimes(blob, now, now))
	}
	if err != nil {
		return err
	}
	before, err := identity(blob)
	if err != nil {
		return err
	}
	if readRecord(home, sum) == before {
		return nil
	}
	f, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading: an error of Close does not matter
	_, got, err := digest.Of(f)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if got != sum {
		return errDamaged
	}
	writeRecord(home, sum, before)
	return nil
}

// readRecord returns the content of the file that recordPath names. It returns
// "" if there is no such file or if the file is more than a day old. A disk
// can corrupt a blob without changing the blob's times, so the blob must be
// hashed again every day.
func readRecord(home, sum string) string {
	file := recordPath(home, sum)
	info, err := os.Lstat(file)
	if err != nil || time.Since(info.ModTime()).Abs() > verifiedFor {
		return ""
	}
	text, _ := bounded.ReadFile(file, bounded.Words) // an unreadable file is treated as a missing one
	return string(text)
}

// writeRecord records that the blob sum was verified, in the file that recordPath names. If
// the file cannot be written or is truncated, the blob is hashed again at its
// next use; nothing else is lost.
func writeRecord(home, sum, identity string) {
	if file := recordPath(home, sum); file != "" && os.MkdirAll(filepath.Dir(file), 0o700) == nil {
		_ = os.WriteFile(file, []byte(identity), 0o600) // an error only means that the blob is hashed again
	}
}

// identity returns the inode number, size and times of a file, which change
// when its content is written.
func identity(path string) (string, error) {
	var is unix.Stat_t
	if err := unix.Stat(path, &is); err != nil {
		return "", err
	}
	return fmt.Sprint(is.Ino, is.Size, is.Mtim, is.Ctim), nil
}
