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

// The signals on which Python writes its stacks, as sitecustomize.py of package jobfolder
// sets them up. No program is known that uses them.
const (
	askPython  = unix.Signal(58) // as soon as a thread has Python's lock
	urgePython = unix.Signal(57) // at once: safe only while nothing runs in Python
)

const (
	// lockTime bounds the wait for Python's lock. Who runs in Python gives it up within
	// milliseconds, within a second on a machine with a load of a hundred; foreign code may
	// keep it.
	lockTime  = 3 * time.Second
	dumpTime  = time.Second            // bounds the wait for a dump that needs no lock
	dumpQuiet = 100 * time.Millisecond // without a further byte the dump is complete
	maxDump   = 256 << 10              // bytes of a dump that are read
)

// Python has a process write the stacks of its Python threads into file, and returns them.
// Threads of plx's own take the signals, which all others block: no sleep and no poll of the
// program ends early.
// It returns "" for a process that has not opened file: it is no Python, or a Python that
// has closed all its descriptors. Such a process is left alone, as is one that is stopped.
func Python(pid int, file string) string {
	p, err := process.Read(pid)
	if err != nil || !opened(pid, file) || stateOf(fmt.Sprintf("/proc/%d/", pid)) == 'T' {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close() // it is only read
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
	dump, _ := io.ReadAll(io.NewSectionReader(f, before, min(size-before, maxDump))) // what could be read counts
	return withoutOwn(string(dump))
}

// IsPython reports whether a process is a Python.
func IsPython(pid int) bool {
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.TrimRight(filepath.Base(program), "0123456789.") == "python"
}

// ownThreads are the functions of sitecustomize.py in which threads wait for signals.
var ownThreads = []string{" in _write_for_plx", " in _wait_for_plx"}

// withoutOwn removes from a dump the threads that plx has started in the process.
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

// grown waits, for a time, until a file has grown beyond a size, and then until it grows no
// more, in bounded time. It returns the new size.
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

// opened reports whether a process has a descriptor for file.
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

// Describe returns the kernel's view of a process as text. It adds the kernel's stacks if
// this process may read them, which needs root.
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
