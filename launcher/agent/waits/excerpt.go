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

// Limits of an excerpt of a task's stacks.
const (
	maxExcerpt = 4   // maximum number of lines
	maxFrames  = 3   // maximum number of functions in a line
	maxWidth   = 300 // maximum length of a line in bytes
)

var (
	pythonHead  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^Python, process (\d+) \((.*)\):$`) })
	pythonFrame = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^  File "(.*)", line (\d+) in (.+)$`) })
	goHead      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(goroutine \d+) .*\[([^\]]*)\]:$`) })
	goPlace     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\t(.*):(\d+)( \+0x[0-9a-f]+)?$`) })
)

// trainerPackages is the prefix of functions of plx's trainer. trainerCalls
// are prefixes of those functions that user programs call and that may wait
// for other tasks.
const trainerPackages = "github.com/plx-run/plx/trainer"

var trainerCalls = []string{trainerPackages + ".(*Session).", trainerPackages + ".(*Job)."}

// standard are the first path elements of Go's standard packages. The package
// path of a user's code is main, or begins with a domain name.
var standard = strings.Fields(`archive bufio bytes cmp compress container context crypto database debug embed encoding
	errors expvar flag fmt go hash html image index internal io iter log maps math mime net os path plugin reflect regexp
	runtime slices sort strconv strings structs sync syscall testing text time unicode unique unsafe vendor weak`)

// ofProgram reports whether a function belongs to the user's program, not to
// Go's standard library or plx's trainer.
func ofProgram(function string) bool {
	first := function[:strings.IndexAny(function+".", "./")]
	return first != "panic" && !strings.HasPrefix(function, trainerPackages) && !slices.Contains(standard, first)
}

// Excerpt returns the most useful lines of a task's stacks: the position of
// each Python process's main thread, and the goroutines that are in functions
// of the user's program. It returns nil if text has no such stacks.
func Excerpt(text string) []string {
	lines := goroutines(text)
	for _, p := range pythons(text) {
		imported := slices.IndexFunc(p.calls, func(c frame) bool { return c.function == module }) // index of the innermost module frame, which is the module being run or imported
		lines = append(lines, fmt.Sprintf("%s (pid %d): %s", p.name, p.pid, chain(p.calls[:1+imported])))
	}
	return bounded(lines)
}

// bounded shortens lines to the limits of an excerpt.
func bounded(lines []string) []string {
	for i, line := range lines {
		if len(line) > maxWidth {
			lines[i] = strings.ToValidUTF8(line[:maxWidth], "") + " ..."
		}
	}
	return lines[:min(len(lines), maxExcerpt)]
}

// frame is one function call in a stack.
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
	calls []frame // calls on the stack, from the innermost to the outermost
}

// module is the name that Python's stacks show for the top level of a module.
// Among the threads of a process, only the main thread has it on its stack.
const module = "<module>"

// pythons returns the main thread of each Python process in text, the stacks
// of a task.
func pythons(text string) (all []python) {
	var p python
	for block := range strings.SplitSeq(text, "\n\n") {
		p.calls = nil
		for line := range strings.Lines(block) {
			line = strings.TrimRight(line, "\n")
			if m := pythonHead().FindStringSubmatch(line); m != nil {
				pid, _ := strconv.Atoi(m[1]) // ignore an error: pid is then a number that no process has
				p = python{name: m[2], pid: pid}
			} else if m := pythonFrame().FindStringSubmatch(line); m != nil {
				p.calls = append(p.calls, frame{function: m[3], file: m[1], line: m[2]})
			} else if strings.Contains(line, "most recent call first") {
				p.calls = nil // the next thread of the process begins
			}
		}
		if p.name != "" && slices.ContainsFunc(p.calls, func(c frame) bool { return c.function == module }) {
			all = append(all, p)
			p = python{}
		}
	}
	return all
}

// goroutine is a goroutine that is in a function of the user's program.
type goroutine struct {
	line  string // text for the user: goroutine number, state, and calls of the program
	at    string // source location in the format of the results of Places
	main  bool   // true if main.main is the only function of the program in the stack
	waits bool   // true if the goroutine waits for other tasks, in a call of plx's trainer
}

// goroutines returns a line for each goroutine that is in a function of the
// user's program. Goroutines whose stack has only main.main come last, because
// main often just waits for other goroutines.
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

// Training reports at which line of the program a task's training is, and
// whether it waits for other tasks. text has the task's stacks. Training
// returns nil if they contain no goroutine of the user's program.
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

// ofGo returns the goroutines that are in functions of the user's program.
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
		state, _, _ := strings.Cut(m[2], ", ") // cut off the time for which the goroutine has been blocked
		all = append(all, goroutine{line: m[1] + " [" + m[2] + "]: " + chain(calls), at: cmp.Or(called, state) + at(calls[0]), waits: waits,
			main: len(calls) == 1 && calls[0].function == "main.main"})
	}
	return all
}

// programCalls returns the calls in a goroutine's stack that belong to the
// user's program, the innermost first. called is the library function that the
// innermost of these calls has called; "" if there is none. waits reports
// whether the program is in a call of plx's trainer that waits for other
// tasks.
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
