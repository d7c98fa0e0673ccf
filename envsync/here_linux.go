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

// Here returns what this host is, for ReadFacts. It makes sure that ~/.plx is the user's own and can
// be written, and gives its file system a name if it has none.
func Here() (json.RawMessage, error) {
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
	f.BootID, _ = firstLine(bootFile) // a container may hide it
	if words := strings.Fields(os.Getenv("SSH_CONNECTION")); len(words) == 4 {
		f.ServerAddr, _, _ = strings.Cut(words[2], "%") // the zone is the host's own
	}
	return json.Marshal(f)
}

const bootFile = "/proc/sys/kernel/random/boot_id"

// ownFolder makes sure that ~/.plx is the user's own and can be written, and returns the name of
// its file system.
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
	name, _ := firstLine(file) // of several that find none, all have the name that one gives
	fresh := name == ""
	if fresh {
		id := make([]byte, 16)
		rand.Read(id) // never fails
		name = hex.EncodeToString(id)
	}
	probe := filepath.Join(plx, ".fsid."+rand.Text())
	if err := os.WriteFile(probe, []byte(name+"\n"), 0o600); err != nil {
		return "", errors.Join(err, os.RemoveAll(probe))
	}
	defer os.RemoveAll(probe) // it was written just now
	if !fresh {
		return name, nil
	}
	if info, err := os.Lstat(file); err == nil && info.Size() == 0 {
		_ = os.Remove(file) // emptied by a full disk; another process may be faster
	}
	if err := os.Link(probe, file); err != nil && !errors.Is(err, os.ErrExist) {
		if err := os.Rename(probe, file); err != nil { // a file system without links
			return "", err
		}
	}
	return firstLine(file)
}

// firstLine returns a file's first line, which is not empty.
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

// Having returns which of the blobs, of which it gets sums and sizes, are on this host and right, and
// which are damaged. One whose times and size are those that it had when it was hashed last, in this
// boot of the host, is hashed once a day. It notes that they were used.
func Having(wanted map[string]int64) (sums, damaged []string) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, nil
	}
	for sum, size := range wanted {
		if !isSum(sum) {
			continue
		}
		switch err := right(home, sum, size); {
		case err == nil:
			sums = append(sums, sum)
		case errors.Is(err, errDamaged):
			damaged = append(damaged, sum)
		}
	}
	return sums, damaged
}

// OpenBlob opens the blob of a sum on this host, for reading.
func OpenBlob(sum string) (*os.File, error) {
	home, err := os.UserHomeDir()
	if err == nil && !isSum(sum) {
		err = fmt.Errorf("%q is no name of a blob", sum)
	}
	if err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(home, BlobPath(sum)))
}

// isSum reports whether s can be the name of a blob.
func isSum(s string) bool {
	sum, err := hex.DecodeString(s)
	return err == nil && len(sum) == sha256.Size
}

// Settle makes a file the blob of a sum, which it has, once it would outlast a power cut. Of two that
// settle one file at once the second finds the blob in its place.
func Settle(file, sum string, size int64) error {
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	err = settle(home, file, sum, size)
	if errors.Is(err, os.ErrNotExist) && right(home, sum, size) == nil {
		return nil
	}
	return err
}

func settle(home, file, sum string, size int64) error {
	if err := makeDurable(file); err != nil {
		return err
	}
	if right(home, sum, size) == nil { // it may be running, and stays
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
		_ = folder.Sync() // some file systems cannot do it for a folder
		folder.Close()    // only read
	}
	if as, err := identity(blob); err == nil {
		note(home, sum, as)
	}
	return nil
}

// makeDurable makes a file executable, used now, and one that outlasts a power cut.
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

// mark returns the file that notes a blob of this sum which was found right in this boot of the
// host: it holds the identity that the blob had then. "": there can be none. Hosts with one home
// have files of their own: what one has cached tells nothing of what the next one reads.
func mark(home, sum string) string {
	boot, err := firstLine(bootFile)
	if err != nil || strings.Trim(boot, "0123456789abcdef-") != "" {
		return ""
	}
	return filepath.Join(home, ".plx/verified", boot+"."+sum)
}

const (
	recent  = time.Hour      // how long a blob's time may be behind its use
	trusted = 24 * time.Hour // how long a blob that was hashed is right if its times say so
)

var errDamaged = errors.New("it is damaged")

// right returns an error unless the blob of a sum is in a home, and has the content of the sum.
func right(home, sum string, size int64) error {
	blob := filepath.Join(home, BlobPath(sum))
	info, err := os.Lstat(blob)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != size {
		return fmt.Errorf("it is another file: %w", errDamaged)
	}
	if info.Mode().Perm() != 0o700 {
		err = os.Chmod(blob, 0o700)
	}
	if now := time.Now(); now.Sub(info.ModTime()) > recent {
		err = errors.Join(err, os.Chtimes(blob, now, now))
	}
	if err != nil {
		return err
	}
	before, err := identity(blob)
	if err != nil {
		return err
	}
	if marked(home, sum) == before {
		return nil
	}
	f, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading
	_, got, err := digest.Of(f)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if got != sum {
		return errDamaged
	}
	note(home, sum, before)
	return nil
}

// marked returns what the mark of a blob holds; "": there is none, or it is a day old. A disk decays,
// and keeps the times of what has.
func marked(home, sum string) string {
	file := mark(home, sum)
	info, err := os.Lstat(file)
	if err != nil || time.Since(info.ModTime()).Abs() > trusted {
		return ""
	}
	text, _ := bounded.ReadFile(file, bounded.Words) // what cannot be read is not marked
	return string(text)
}

// note marks a blob. A mark that cannot be written, or was cut off, costs the next look a hash.
func note(home, sum, identity string) {
	if file := mark(home, sum); file != "" && os.MkdirAll(filepath.Dir(file), 0o700) == nil {
		_ = os.WriteFile(file, []byte(identity), 0o600) // see above
	}
}

// identity is what does not stay when the content changes: inode, size and times.
func identity(path string) (string, error) {
	var is unix.Stat_t
	if err := unix.Stat(path, &is); err != nil {
		return "", err
	}
	return fmt.Sprint(is.Ino, is.Size, is.Mtim, is.Ctim), nil
}
