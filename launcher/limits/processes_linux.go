package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processes compares the limit of processes, which counts threads, with those that the user has.
// The limit does not hold for root.
func processes() error {
	most, limited := limit(unix.RLIMIT_NPROC)
	if !limited || most >= many || os.Getuid() == 0 {
		return nil
	}
	if n := running("/proc", os.Getuid()); uint64(n)+threads > most {
		return fmt.Errorf("the shell limits the number of processes to %d (ulimit -u), of which this user has %d with their threads", most, n)
	}
	return nil
}

// running counts the threads of a user.
func running(proc string, user int) (n int) {
	all, _ := filepath.Glob(proc + "/[0-9]*/status") // the pattern is right
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		ids, count := strings.Fields(line(string(text), "Uid:")), line(string(text), "Threads:")
		if t, err := strconv.Atoi(strings.TrimSpace(count)); err == nil && len(ids) > 0 && ids[0] == strconv.Itoa(user) {
			n += t
		}
	}
	return n
}

// line returns what follows a name at the beginning of a line.
func line(text, name string) string {
	_, after, _ := strings.Cut(text, "\n"+name)
	value, _, _ := strings.Cut(after, "\n")
	return value
}
