//go:build linux

package waits

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/plx-run/plx/launcher/protocol"
)

// Bounds on an excerpt.
const (
	maxExcerpt = 4   // lines
	maxFrames  = 3   // functions of a line
	maxWidth   = 300 // bytes of a line
)

var (
	pythonHead  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^Python, process (\d+) \((.*)\):$`) })
	pythonFrame = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^  File "(.*)", line (\d+) in (.+)$`) })
	goHead      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(goroutine \d+) .*\[([^\]]*)\]:$`) })
	goPlace     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\t(.*):(\d+)( \+0x[0-9a-f]+)?$`) })
)

// trainerPackages begins functions of plx's trainer, and trainerCalls those that programs
// call and that wait for other tasks.
const trainerPackages = "github.com/plx-run/plx/trainer"

var trainerCalls = []string{trainerPackages + ".(*Session).", trainerPackages + ".(*Job)."}

// standard are the first elements of the paths of Go's standard packages. Paths of other
// packages begin with a host, or are main.
var standard = strings.Fields(`archive bufio bytes cmp compress container context crypto database debug embed encoding
	errors expvar flag fmt go hash html image index internal io iter log maps math mime net os path plugin reflect regexp
	runtime slices sort strconv strings structs sync syscall testing text time unicode unique unsafe vendor weak`)

// ofProgram reports whether a function is the user's own.
func ofProgram(function string) bool {
	first := function[:strings.IndexAny(function+".", "./")]
	return first != "panic" && !strings.HasPrefix(function, trainerPackages) && !slices.Contains(standard, first)
}

// Excerpt returns of the stacks of a task, as the agent writes them, the lines that tell a
// user most: where the main threads of its Python processes are, and those goroutines that
// are in functions of the program. It returns nil if there are no such stacks.
func Excerpt(text string) []string {
	lines := goroutines(text)
	for _, p := range pythons(text) {
		imported := slices.IndexFunc(p.calls, func(c frame) bool { return c.function == module }) // last
		lines = append(lines, fmt.Sprintf("%s (pid %d): %s", p.name, p.pid, chain(p.calls[:1+imported])))
	}
	return bounded(lines)
}

// bounded cuts lines to what an excerpt may have.
func bounded(lines []string) []string {
	for i, line := range lines {
		if len(line) > maxWidth {
			lines[i] = strings.ToValidUTF8(line[:maxWidth], "") + " ..."
		}
	}
	return lines[:min(len(lines), maxExcerpt)]
}

// frame is a call in a stack.
type frame struct {
	function string
	file     string
	line     string
}

func (c frame) String() string { return place(c.file, c.line) + " in " + c.function }

// python is the main thread of a Python process.
type python struct {
	name  string
	pid   int
	calls []frame // the innermost first
}

// module is the function of Python in which a program begins. Of the threads only the main
// one has it.
const module = "<module>"

// pythons returns the main thread of each Python process.
func pythons(text string) (all []python) {
	var p python
	for block := range strings.SplitSeq(text, "\n\n") {
		p.calls = nil
		for line := range strings.Lines(block) {
			line = strings.TrimRight(line, "\n")
			if m := pythonHead().FindStringSubmatch(line); m != nil {
				pid, _ := strconv.Atoi(m[1]) // a number that is too large is that of no process
				p = python{name: m[2], pid: pid}
			} else if m := pythonFrame().FindStringSubmatch(line); m != nil {
				p.calls = append(p.calls, frame{function: m[3], file: m[1], line: m[2]})
			} else if strings.Contains(line, "most recent call first") {
				p.calls = nil // another thread begins
			}
		}
		if p.name != "" && slices.ContainsFunc(p.calls, func(c frame) bool { return c.function == module }) {
			all = append(all, p)
			p = python{}
		}
	}
	return all
}

// goroutine is one goroutine in functions of the program.
type goroutine struct {
	line  string // number, state, and the calls of the program
	at    string // its place, see Places
	main  bool   // of the program it is in main.main alone
	waits bool   // it is in a call of plx's trainer that waits for other tasks
}

// goroutines returns a line for each goroutine in a function of the program. One that is in
// main.main alone comes last: it often waits for the others.
func goroutines(text string) (lines []string) {
	var idle []string
	for _, g := range ofGo(text) {
		if g.main {
			idle = append(idle, g.line)
		} else {
			lines = append(lines, g.line)
		}
	}
	return append(lines, idle...)
}

// Training tells from the stacks of a task, as the agent writes them, where its training is;
// nil: the task does not use plx's trainer, or has not told.
func Training(text string) *protocol.Training {
	var found *protocol.Training
	for _, g := range ofGo(text) {
		if g.waits {
			return &protocol.Training{Waits: true}
		}
		if found == nil || found.Where == "" {
			found = &protocol.Training{Where: g.line}
		}
	}
	return found
}

// ofGo returns the goroutines that are in functions of the program.
func ofGo(text string) (all []goroutine) {
	_, text, found := strings.Cut(text, "\nGoroutines:\n")
	if !found {
		return nil
	}
	for block := range strings.SplitSeq(text, "\n\n") {
		head, rest, _ := strings.Cut(block, "\n")
		m := goHead().FindStringSubmatch(head)
		calls, called, waits := programCalls(rest)
		if m == nil || len(calls) == 0 {
			continue
		}
		state, _, _ := strings.Cut(m[2], ", ") // without the time
		all = append(all, goroutine{line: m[1] + " [" + m[2] + "]: " + chain(calls), at: cmp.Or(called, state) + at(calls[0]), waits: waits,
			main: len(calls) == 1 && calls[0].function == "main.main"})
	}
	return all
}

// programCalls returns the calls of a goroutine that are the program's own, the innermost
// first. called is the function outside of the program that the innermost has called; "":
// none. waits reports whether it is one of the trainer that waits for other tasks.
func programCalls(block string) (calls []frame, called string, waits bool) {
	name := ""
	for line := range strings.Lines(block) {
		line = strings.TrimRight(line, "\n")
		if m := goPlace().FindStringSubmatch(line); m != nil && name != "" {
			calls = append(calls, frame{function: name, file: m[1], line: m[2]})
		}
		name = ""
		i := strings.LastIndex(line, "(")
		if i <= 0 || strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "created by ") {
			continue
		}
		if ofProgram(line) {
			name = path.Base(line[:i])
		} else if len(calls) == 0 {
			called = path.Base(line[:i])
		}
		waits = waits || len(calls) == 0 && slices.ContainsFunc(trainerCalls, func(s string) bool { return strings.HasPrefix(line, s) })
	}
	return calls, called, waits
}

func chain(calls []frame) string {
	var words []string
	for _, c := range calls[:min(len(calls), maxFrames)] {
		words = append(words, c.String())
	}
	return strings.Join(words, ", called from ")
}

func place(file, line string) string { return path.Base(file) + ":" + line }
