package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// Estimated number of files that plx opens on the machine that launches a job.
// TODO: count them in a large launch; no measurement is recorded.
const (
	filesHere    = 64 // independent of the number of hosts
	filesForHost = 4  // for each host: its SSH connection and its log files
)

// judgeThisMachine returns findings about the launching machine. openFileLimit
// is the machine's hard limit of open files, and home is the error of a test
// write to ~/.plx.
func judgeThisMachine(hosts int, openFileLimit int64, home error) []Finding {
	n := notes{host: thisMachine}
	if needed := int64(filesHere + filesForHost*hosts); openFileLimit != protocol.NotKnown && openFileLimit < needed {
		n.add(Error, Limits, "raise it: ulimit -Hn", "plx may open %d files, and needs about %d for so many hosts", openFileLimit, needed)
	}
	if home != nil {
		n.addError(Home, home, "make ~/.plx writable: plx keeps there where jobs run")
	}
	return n.all
}

// openFileLimit returns the hard limit of open files, to which the Go runtime
// raises the soft limit.
func openFileLimit() int64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || uint64(l.Max) > uint64(protocol.Unlimited) {
		return protocol.NotKnown
	}
	return int64(l.Max)
}

// writable returns an error if plx cannot create files in the folder .plx/jobs
// of the home folder. It removes its test file.
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
		dir = filepath.Dir(dir) // a launch creates the missing directory, so test its parent
	}
	f, err := os.CreateTemp(dir, ".plx-doctor-")
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("x"))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
