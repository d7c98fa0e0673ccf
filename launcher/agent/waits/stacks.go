//go:build linux

package waits

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// askPython and urgePython are the signals on which a Python process writes
// its stacks. The module sitecustomize.py of package jobfolder installs the
// handlers. No program is known to use these signals for anything else.
const (
	askPython  = unix.Signal(58) // wait for the GIL (Python's global lock), then write the stacks
	urgePython = unix.Signal(57) // write the stacks at once, without the GIL; this is safe only while no thread runs Python code
)

const (
	// lockTime is how long to wait for stacks that need the GIL (Python's
	// global lock). Python code releases the GIL within milliseconds, or
	// within a second on a heavily loaded machine. Native code may keep it
	// longer.
	lockTime  = 3 * time.Second
	dumpTime  = time.Second            // how long to wait for stacks that do not need the GIL
	dumpQuiet = 100 * time.Millisecond // the stacks count as complete if the file has not grown for this time
	maxDump   = 256 << 10              // maximum number of bytes that the function Python reads from the file
)

// Python makes a Python process append the stacks of its threads to file, and
// returns them. It sends signals that only plx's own threads in the process
// receive, so no sleep or poll of the program is interrupted. It returns ""
// without sending a signal if the process is stopped or does not have file
// open. The second case means that the process is not Python, or has closed
// all descriptors.
func Python(pid int, file string) string {
	p, err := process.Read(pid)
	if err != nil || !opened(pid, file) || stateOf(fmt.Sprintf("/proc/%d/", pid)) == 'T' {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close() // the file is only read
	before, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	process.Signal(p, askPython)
	size := grown(f, before, lockTime)
	if size == before {
		process.Signal(p, urgePython)
		size = grown(f, before, dumpTime)
	}
	dump, _ := io.ReadAll(io.NewSectionReader(f, before, min(size-before, maxDump))) // ignore an error and return what was read
	return withoutOwn(string(dump))
}

// IsPython reports whether a process runs a Python interpreter, judging by its
// file name.
func IsPython(pid int) bool {
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.TrimRight(filepath.Base(program), "0123456789.") == "python"
}

// ownThreads identify plx's own threads in a Python process: they are the
// functions of sitecustomize.py in which these threads wait for signals.
var ownThreads = []string{" in _write_for_plx", " in _wait_for_plx"}

// withoutOwn removes the stacks of plx's own threads from the stacks of a
// Python process.
func withoutOwn(dump string) string {
	var rest []string
	for _, thread := range strings.SplitAfter(dump, "\n\n") {
		own := func(last string) bool { return strings.HasSuffix(strings.TrimRight(thread, "\n"), last) }
		if !slices.ContainsFunc(ownThreads, own) {
			rest = append(rest, thread)
		}
	}
	return strings.Join(rest, "")
}

// grown waits until the file is longer than before, for at most the time
// first. Then it waits until the file stops growing, but at most dumpTime
// longer. It returns the file's length.
func grown(f *os.File, before int64, first time.Duration) int64 {
	size, end, quiet := before, time.Now().Add(first+dumpTime), time.Now().Add(first)
	for now := time.Now(); now.Before(end) && now.Before(quiet); now = time.Now() {
		if info, err := f.Stat(); err == nil && info.Size() > size {
			size, quiet = info.Size(), now.Add(dumpQuiet)
		}
		time.Sleep(dumpQuiet / 10)
	}
	return size
}

// opened reports whether a process has file open.
func opened(pid int, file string) bool {
	want, err := os.Stat(file)
	if err != nil {
		return false
	}
	for fd, to := range process.Files(pid) {
		if filepath.Base(to) != filepath.Base(file) {
			continue
		}
		if info, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err == nil && os.SameFile(info, want) {
			return true
		}
	}
	return false
}

// Describe formats what the kernel reports about a process. With root's
// permissions it includes the kernel stack.
func Describe(p protocol.Process) string {
	var text strings.Builder
	fmt.Fprintf(&text, "process %d (%s), child of %d\n", p.PID, p.Name, p.Parent)
	for i, t := range p.Threads {
		name := "first thread"
		if i > 0 {
			name = fmt.Sprintf("%d other threads", t.Count)
		}
		fmt.Fprintf(&text, "  %s: %s", name, t.Wait)
		for _, more := range []string{t.Where, t.What} {
			if more != "" {
				fmt.Fprintf(&text, ", %s", more)
			}
		}
		if len(t.PIDs) > 0 {
			fmt.Fprintf(&text, ", processes %v", t.PIDs)
		}
		text.WriteString("\n")
		for _, n := range t.Sockets {
			fmt.Fprintf(&text, "    %s\n", socketLine(p.Sockets[n]))
		}
	}
	for _, s := range p.Sockets {
		fmt.Fprintf(&text, "  %s\n", socketLine(s))
	}
	if stack, err := os.ReadFile(fmt.Sprintf("/proc/%d/stack", p.PID)); err == nil {
		for line := range strings.Lines(string(stack)) {
			fmt.Fprintf(&text, "  %s", line)
		}
	}
	return text.String()
}

func socketLine(s protocol.Socket) string {
	if s.Listening {
		return fmt.Sprintf("socket %s listens, %d connections wait", s.Local, s.Unread)
	}
	return fmt.Sprintf("socket %s to %s: %d bytes unread, %d bytes unsent, sent %s ago, received %s ago", s.Local, s.Peer, s.Unread, s.Unsent, s.Sent, s.Received)
}
