// Package executable writes scripts and programs that a test executes
// immediately afterwards.
package executable

import (
	"os"
	"syscall"
)

// Write does the same as os.WriteFile, for a file that the test executes
// immediately afterwards. During os.WriteFile, another goroutine could fork
// while the file is open for writing. Its child would keep the file open until
// it calls exec, and executing the file would fail with "text file busy".
// Write prevents forks while it writes.
func Write(path string, content []byte, mode os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, mode)
}
