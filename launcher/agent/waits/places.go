//go:build linux

package waits

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// Places returns the source locations that a task's program is executing, such
// as "all_reduce (train.py:41)": the called function and the program's line.
// text has the task's stacks. Locations contain no pids or times, so they are
// equal for tasks at the same location. Places returns nil if text has no
// stacks of Python or Go.
func Places(text string) []string {
	var all []string
	for _, g := range ofGo(text) {
		switch {
		case g.waits:
			all = slices.Insert(all, 0, g.at)
		case !g.main:
			all = append(all, g.at)
		}
	}
	if len(all) == 0 { // at most the goroutine of main.main is in a function of the program: use that one
		for _, g := range ofGo(text) {
			all = append(all, g.at)
		}
	}
	var foreign []string
	for _, p := range pythons(text) {
		if at, own := p.place(); own {
			all = append(all, at)
		} else {
			foreign = append(foreign, at)
		}
	}
	if len(all) == 0 && len(foreign) > 0 {
		all = foreign[:1] // take only the first process: others are often helper processes that it started
	}
	return bounded(distinct(all))
}

// KernelPlaces describes what the processes of a task wait for, such as
// "sleep: sleeps". It includes only processes without children. Tasks that
// wait for the same thing get equal texts.
func KernelPlaces(processes []protocol.Process) []string {
	var all []string
	for _, p := range processes {
		parent := slices.ContainsFunc(processes, func(c protocol.Process) bool { return c.Parent == p.PID })
		if !parent && len(p.Threads) > 0 {
			all = append(all, fmt.Sprintf("%s: %s", p.Name, p.Threads[0].Wait))
		}
	}
	return bounded(distinct(all))
}

// distinct removes repeated lines and keeps the order of lines.
func distinct(lines []string) (all []string) {
	for _, line := range lines {
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return all
}

func at(c frame) string { return " (" + place(c.file, c.line) + ")" }

// libraries matches the paths of Python's standard library and of installed
// packages. It also matches names such as "<string>", which stand for code
// without a file.
var libraries = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/(site|dist)-packages/|/lib(64)?/python[0-9.]+/|^<`)
})

// place returns the innermost line of the user's program in the main thread's
// stack, with the function that this line calls. It finds the function's name
// in the source line, because the stack can be misleading: it lacks functions
// that are not written in Python, such as time.sleep, and shows a decorator's
// wrapper instead of the decorated function. own is false if the stack has no
// line of the user's program.
func (p python) place() (text string, own bool) {
	i := slices.IndexFunc(p.calls, func(c frame) bool { return !libraries().MatchString(c.file) })
	if i < 0 {
		return p.calls[0].function + at(p.calls[0]), false
	}
	inner, c := p.calls[:i], p.calls[i]
	called := callsIn(sourceLine(p.pid, c.file, c.line))
	for _, f := range slices.Backward(inner) {
		if slices.ContainsFunc(called, func(name string) bool { return name == f.function || strings.HasSuffix(name, "."+f.function) }) {
			return f.function + at(c), true
		}
	}
	switch {
	case i > 0: // the source line names no function, for example if an operator calls a method
		return inner[i-1].function + at(c), true
	case len(called) > 0:
		return strings.Join(called[:min(len(called), maxCalled)], " or ") + at(c), true
	}
	return c.function + at(c), true
}

// maxCalled is the maximum number of functions that place names if it cannot
// determine which function of a line is running.
const maxCalled = 3

// pythonCall matches a call in a line of Python. keywords are names that can
// stand before a parenthesis but are no functions.
var (
	pythonCall = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_.]*)[ ]*\(`) })
	keywords   = strings.Fields("and as assert await class def elif except for from if import in is lambda not or return while with yield")
)

// callsIn returns the names of the functions that a line of Python calls, from
// left to right.
func callsIn(line string) (names []string) {
	for _, m := range pythonCall().FindAllStringSubmatch(line, -1) {
		if !slices.Contains(keywords, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// maxSource is the maximum number of bytes that sourceLine reads from a source
// file.
const maxSource = 4 << 20

// sourceLine returns a line of a source file. file is the path as the process
// pid sees it, which differs from the agent's if that process runs in a
// container. sourceLine returns "" if the file cannot be read.
func sourceLine(pid int, file, line string) string {
	n, err := strconv.Atoi(line)
	if err != nil {
		return ""
	}
	root := "/cwd/"
	if strings.HasPrefix(file, "/") {
		root = "/root"
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d%s%s", pid, root, file), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close() // the file was only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	lines := bufio.NewScanner(io.LimitReader(f, maxSource))
	for i := 1; lines.Scan(); i++ {
		if i == n {
			return lines.Text()
		}
	}
	return ""
}
