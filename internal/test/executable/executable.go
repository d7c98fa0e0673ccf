// Package executable writes files that the same process executes afterwards.
package executable

import (
	"os"
	"syscall"
)

// Write is os.WriteFile for a script or program that is executed as soon as it is
// written. A child that another goroutine starts while the file is open for writing
// holds it open until that child executes its own program, and the kernel refuses for
// so long to execute the file: "text file busy". Write starts no child in between.
func Write(path string, content []byte, mode os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, mode)
}
