//go:build linux

package waits

import (
	"path"
	"regexp"
	"slices"
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
	lines := append(goroutines(text), pythons(text)...)
	for i, line := range lines {
		if len(line) > maxWidth {
			lines[i] = strings.ToValidUTF8(line[:maxWidth], "") + " ..."
		}
	}
	return lines[:min(len(lines), maxExcerpt)]
}

// pythons returns a line for each Python process, with the innermost calls first.
func pythons(text string) (lines []string) {
	who, calls := "", []string(nil)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := pythonHead().FindStringSubmatch(line); m != nil {
			who, calls = m[2]+" (pid "+m[1]+")", nil
			continue
		}
		m := pythonFrame().FindStringSubmatch(line)
		if m == nil {
			calls = nil // another thread begins
			continue
		}
		calls = append(calls, place(m[1], m[2])+" in "+m[3])
		if m[3] == "<module>" && who != "" { // only the main thread begins in a module
			lines = append(lines, who+": "+chain(calls))
			who = ""
		}
	}
	return lines
}

// goroutine is one goroutine in functions of the program.
type goroutine struct {
	line  string // number, state, and the calls of the program
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
		calls, waits := programCalls(rest)
		if m == nil || len(calls) == 0 {
			continue
		}
		all = append(all, goroutine{line: m[1] + " [" + m[2] + "]: " + chain(calls), waits: waits,
			main: len(calls) == 1 && strings.HasSuffix(calls[0], " in main.main")})
	}
	return all
}

// programCalls returns the calls of a goroutine that are the program's own, the innermost
// first. waits reports whether the innermost has called the trainer.
func programCalls(block string) (calls []string, waits bool) {
	name := ""
	for line := range strings.Lines(block) {
		line = strings.TrimRight(line, "\n")
		if m := goPlace().FindStringSubmatch(line); m != nil && name != "" {
			calls = append(calls, place(m[1], m[2])+" in "+name)
		}
		name = ""
		i := strings.LastIndex(line, "(")
		if i <= 0 || strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "created by ") {
			continue
		}
		if ofProgram(line) {
			name = path.Base(line[:i])
		}
		waits = waits || len(calls) == 0 && slices.ContainsFunc(trainerCalls, func(s string) bool { return strings.HasPrefix(line, s) })
	}
	return calls, waits
}

func chain(calls []string) string {
	return strings.Join(calls[:min(len(calls), maxFrames)], ", called from ")
}

func place(file, line string) string { return path.Base(file) + ":" + line }
