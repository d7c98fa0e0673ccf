package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// Files that plx opens on the launching machine.
const (
	filesHere    = 64 // by itself
	filesForHost = 4  // for each host: its connection, and logs
)

// judgeHere finds what is wrong with the launching machine. openFiles is its hard limit,
// and home the error of writing into ~/.plx.
func judgeHere(hosts int, openFiles int64, home error) []Finding {
	n := notes{host: here}
	if needed := int64(filesHere + filesForHost*hosts); openFiles != protocol.NotKnown && openFiles < needed {
		n.add(Error, Limits, "raise it: ulimit -Hn", "plx may open %d files, and needs about %d for so many hosts", openFiles, needed)
	}
	if home != nil {
		n.failed(Home, home, "make ~/.plx writable: plx keeps there where jobs run")
	}
	return n.all
}

// openFiles returns the hard limit of open files. The soft one is raised to it by Go.
func openFiles() int64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || uint64(l.Max) > uint64(protocol.Unlimited) {
		return protocol.NotKnown
	}
	return int64(l.Max)
}

// writable returns why plx could not record a job below home. It leaves nothing there.
func writable(home string) error {
	if home == "" {
		return errors.New("HOME is not set")
	}
	dir := filepath.Join(home, ".plx", "jobs")
	for {
		_, err := os.Stat(dir)
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir) // a launch makes it
	}
	f, err := os.CreateTemp(dir, ".plx-doctor-")
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("x"))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
