package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processes checks whether the user may start enough processes. The kernel
// counts threads for this limit, and does not apply it to root.
func processes() error {
	most, limited := limit(unix.RLIMIT_NPROC)
	if !limited || most >= enoughProcesses || os.Getuid() == 0 {
		return nil
	}
	if n := threadsOf("/proc", os.Getuid()); uint64(n)+minThreads > most {
		return fmt.Errorf("the shell limits the number of processes to %d (ulimit -u), of which this user has %d with their threads", most, n)
	}
	return nil
}

// threadsOf returns the number of threads of all processes of a user.
func threadsOf(proc string, user int) (n int) {
	all, _ := filepath.Glob(proc + "/[0-9]*/status") // the error is ignored: it only reports a malformed pattern
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // skip a process that has ended
		}
		ids, count := strings.Fields(valueOf(string(text), "Uid:")), valueOf(string(text), "Threads:")
		if t, err := strconv.Atoi(strings.TrimSpace(count)); err == nil && len(ids) > 0 && ids[0] == strconv.Itoa(user) {
			n += t
		}
	}
	return n
}

// valueOf returns what follows name in the first line of text that begins with
// name.
func valueOf(text, name string) string {
	_, after, _ := strings.Cut(text, "\n"+name)
	value, _, _ := strings.Cut(after, "\n")
	return value
}
