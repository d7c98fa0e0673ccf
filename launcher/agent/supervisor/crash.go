//go:build linux

package supervisor

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// crash searches a program's stderr for a crash report of the Go runtime:
//
//	panic: no such table
//
//	goroutine 7 [running]:
//	main.load(...)
//		/home/ann/train/load.go:31 +0x18
//
// The last lines of stderr would not be enough, because the stacks of many
// goroutines may follow the report. A program may itself print a line such as
// "panic: ..."; this line begins a report only if a goroutine line follows.
type crash struct {
	line  []byte // the incomplete line at the end of the input so far, at most maxCause bytes of it
	cause string // the last line that may begin a crash report; "" if none was read
	place string // function line just read, whose source line must come next; "" before the first goroutine line
	found string // summary of the crash in one line; "" if no crash was found
}

// Patterns of lines in a crash report: crashed matches its first line,
// goroutine the header of a goroutine's stack, and source the file and line
// number of a function.
var (
	crashed   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(panic: |fatal error: |SIG[A-Z]+: )`) })
	goroutine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^goroutine \d+ .*\[[^\]]+\]:$`) })
	source    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\t(/?\S.*):(\d+)( \+0x[0-9a-f]+)?$`) })
)

// inGoroutine is the value of crash.place between the goroutine's header and
// its first function.
const inGoroutine = "goroutine"

// read parses the next bytes of stderr.
func (c *crash) read(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		end := i
		if i < 0 {
			end = len(p)
		}
		if i >= 0 && len(c.line) == 0 && !c.mayMatter(p[:i]) {
			p = p[i+1:]
			continue
		}
		if room := maxCause - len(c.line); room > 0 {
			c.line = append(c.line, p[:min(end, room)]...)
		}
		if i < 0 {
			return
		}
		c.take()
		c.line, p = c.line[:0], p[i+1:]
	}
}

// mayMatter quickly rejects a line that cannot belong to a crash report. Most
// lines of a program are rejected.
func (c *crash) mayMatter(line []byte) bool {
	return len(line) > 0 && (c.cause != "" || line[0] == 'p' || line[0] == 'f' || line[0] == 'S')
}

// take parses the complete line in c.line.
func (c *crash) take() {
	if !c.mayMatter(c.line) {
		return
	}
	switch line := strings.TrimRight(string(c.line), "\r"); {
	case crashed().MatchString(line):
		*c = crash{line: c.line, cause: oneLine(line), found: c.found}
	case c.cause == "":
	case goroutine().MatchString(line) && c.place == "":
		c.found, c.place = c.cause, inGoroutine
	case goroutine().MatchString(line): // a second goroutine begins, so the stack of the first one, which crashed, is complete
		c.cause, c.place = "", ""
	case c.place == "":
	case !strings.HasPrefix(line, "\t"):
		c.place = line
	case c.place != inGoroutine && !ofRuntime(c.place):
		if m := source().FindStringSubmatch(line); m != nil {
			c.found += oneLine(" (" + path.Base(m[1]) + ":" + m[2] + ", in " + function(c.place) + ")")
			c.cause, c.place = "", ""
		}
	}
}

// notUsers are prefixes of stack lines that belong to the Go runtime and
// library, not to the user's code.
var notUsers = []string{"panic(", "runtime.", "internal/", "sync.", "created by "}

// ofRuntime reports whether a stack line belongs to the Go runtime or library.
func ofRuntime(call string) bool {
	return slices.ContainsFunc(notUsers, func(start string) bool { return strings.HasPrefix(call, start) })
}

// function returns the function's name in a stack line such as
// "main.(*store).load(0xc00001, {0x5, 0x7})".
func function(call string) string {
	if i := strings.LastIndex(call, "("); i > 0 {
		call = call[:i]
	}
	return path.Base(call)
}
