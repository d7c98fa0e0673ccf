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

// Places returns where the program of a task is, from its stacks as the agent writes them:
// the line of the program that runs, and what it calls there, such as
// "all_reduce (train.py:41)". Tasks that do the same have the same places: there are no pids
// and no times in them. It returns nil if there are no stacks of Python or Go.
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
	if len(all) == 0 { // only main.main is left
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
		all = foreign[:1] // others are often its helpers
	}
	return bounded(distinct(all))
}

// KernelPlaces returns what the processes of a task without children wait for, in words that
// are equal for tasks that do the same: "sleep: sleeps".
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

// distinct returns lines without repetitions, in their order.
func distinct(lines []string) (all []string) {
	for _, line := range lines {
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return all
}

func at(c frame) string { return " (" + place(c.file, c.line) + ")" }

// libraries are the files of Python's library, of installed packages, and what is no file.
var libraries = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/(site|dist)-packages/|/lib(64)?/python[0-9.]+/|^<`)
})

// place returns where a main thread is: the innermost line of the program itself, with the
// function that this line calls. The stack has no functions that are not written in Python,
// such as time.sleep, and has decorators in place of what they decorate: so names come from
// the text of the line. own is false if the stack has no line of the program.
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
	case i > 0: // such as the method behind an operator
		return inner[i-1].function + at(c), true
	case len(called) > 0:
		return strings.Join(called[:min(len(called), maxCalled)], " or ") + at(c), true
	}
	return c.function + at(c), true
}

// maxCalled bounds the functions of a line of which it is not known which one runs.
const maxCalled = 3

// pythonCall is a call in a line of Python, and keywords what only looks like one.
var (
	pythonCall = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_.]*)[ ]*\(`) })
	keywords   = strings.Fields("and as assert await class def elif except for from if import in is lambda not or return while with yield")
)

// callsIn returns the names of the functions that a line of Python calls, in their order.
func callsIn(line string) (names []string) {
	for _, m := range pythonCall().FindAllStringSubmatch(line, -1) {
		if !slices.Contains(keywords, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// maxSource bounds what is read of a file for one of its lines, in bytes.
const maxSource = 4 << 20

// sourceLine returns a line of a source file, as a process sees the file; "": it cannot be
// read.
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
	defer f.Close() // it is only read
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
