package console

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// HasInput reports whether stdin is a file or a pipe with data to read. It
// does not read the data.
func HasInput(stdin *os.File) bool {
	if stdin == nil {
		return false
	}
	info, err := stdin.Stat()
	switch {
	case err != nil:
		return false // Stat failed, so stdin is closed
	case info.Mode().IsRegular():
		at, err := stdin.Seek(0, io.SeekCurrent)
		return err == nil && at < info.Size()
	case info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0:
		return false // stdin is a terminal or /dev/null
	}
	ready := []unix.PollFd{{Fd: int32(stdin.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(ready, 0)
	return err == nil && n > 0 && ready[0].Revents&unix.POLLIN != 0
}
