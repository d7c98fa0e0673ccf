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

// crash finds in a program's stderr why the Go runtime has ended it:
//
//	panic: no such table
//
//	goroutine 7 [running]:
//	main.load(...)
//		/home/ann/train/load.go:31 +0x18
//
// The stacks of many goroutines may follow, so the last lines do not have it. A line that a
// program prints by itself does not count: a goroutine must follow.
type crash struct {
	line  []byte // beginning of the line that is read, at most maxCause bytes
	cause string // the last line that may begin a crash; "": none
	place string // the function of which the next line has the place; "": none
	found string // the crash, in one line; "": none
}

// crashed matches the line with which the Go runtime begins; goroutine the line before the
// functions of the goroutine that has crashed; source the place of a function.
var (
	crashed   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(panic: |fatal error: |SIG[A-Z]+: )`) })
	goroutine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^goroutine \d+ .*\[[^\]]+\]:$`) })
	source    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\t(/?\S.*):(\d+)( \+0x[0-9a-f]+)?$`) })
)

// inGoroutine is crash.place before the first function of the goroutine.
const inGoroutine = "goroutine"

// read takes a piece of the stream.
func (c *crash) read(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		end := i
		if i < 0 {
			end = len(p)
		}
		if i >= 0 && len(c.line) == 0 && !c.heeds(p[:i]) {
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

// heeds reports whether a line may matter. Few do.
func (c *crash) heeds(line []byte) bool {
	return len(line) > 0 && (c.cause != "" || line[0] == 'p' || line[0] == 'f' || line[0] == 'S')
}

// take takes the line that was read.
func (c *crash) take() {
	if !c.heeds(c.line) {
		return
	}
	switch line := strings.TrimRight(string(c.line), "\r"); {
	case crashed().MatchString(line):
		*c = crash{line: c.line, cause: oneLine(line), found: c.found}
	case c.cause == "":
	case goroutine().MatchString(line) && c.place == "":
		c.found, c.place = c.cause, inGoroutine
	case goroutine().MatchString(line): // another one, which did not crash
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

// notUsers begins lines of a stack with functions in which no user looks for a mistake.
var notUsers = []string{"panic(", "runtime.", "internal/", "sync.", "created by "}

// ofRuntime reports whether a function belongs to the runtime.
func ofRuntime(call string) bool {
	return slices.ContainsFunc(notUsers, func(start string) bool { return strings.HasPrefix(call, start) })
}

// function returns the name in a line such as "main.(*store).load(0xc00001, {0x5, 0x7})".
func function(call string) string {
	if i := strings.LastIndex(call, "("); i > 0 {
		call = call[:i]
	}
	return path.Base(call)
}
