//go:build linux

package supervisor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// complaint is why a program failed, by its own account.
type complaint struct {
	cause     string // one line; "": the program has not said why
	traceback string // in Python's format, at most tailSize bytes; "": there is none
}

// blamesPeer reports whether the last lines of a program's stderr say that it failed
// because a peer did.
func blamesPeer(tail string) bool {
	return protocol.LossOfPeer(strings.Split(strings.TrimRight(tail, "\n"), "\n")) != ""
}

// lastLine returns the last line of the traceback, which names the exception.
func (c complaint) lastLine() string {
	text := strings.TrimRight(c.traceback, "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// tailSize is how many of the last bytes of stderr an Exit carries.
const tailSize = 4 << 10

// Bounds on a complaint, in bytes.
const (
	maxErrorFile = 1 << 20
	maxCause     = 400
)

// readComplaint reads the file that TORCHELASTIC_ERROR_FILE names. A missing or
// unreadable file is no complaint. Of a longer file than maxErrorFile the rest is not
// read, so it does not parse.
func readComplaint(path string) complaint {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) // a FIFO does not block
	if err != nil {
		return complaint{}
	}
	defer f.Close() // only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return complaint{}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxErrorFile))
	if err != nil {
		return complaint{}
	}
	return parseComplaint(text)
}

// frame is a line of a traceback.
var frame = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^ *File "([^"\n]+)", line (\d+), in (\S+)`) })

// blob is the path of a program that plx sent.
var blob = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`/blobs/[0-9a-f]{64}$`) })

// parseComplaint reads what torch's record and programs like it write:
//
//	{"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback ..."}}}
//	{"message": "ValueError: x"}
func parseComplaint(text []byte) complaint {
	var file struct{ Message json.RawMessage }
	if json.Unmarshal(text, &file) != nil {
		return complaint{}
	}
	var said struct {
		Message   string
		ExtraInfo struct {
			Traceback string `json:"py_callstack"`
		}
	}
	if json.Unmarshal(file.Message, &said) != nil && json.Unmarshal(file.Message, &said.Message) != nil {
		return complaint{}
	}
	c := complaint{cause: oneLine(said.Message), traceback: said.ExtraInfo.Traceback}
	if frames := frame().FindAllStringSubmatch(c.traceback, -1); c.cause != "" && len(frames) > 0 {
		last := frames[len(frames)-1]
		where := filepath.Base(last[1]) + ":" + last[2]
		if blob().MatchString(last[1]) { // the user has never seen that name
			where = "line " + last[2]
		}
		c.cause += oneLine(fmt.Sprintf(" (%s, in %s)", where, last[3]))
	}
	if extra := len(c.traceback) - tailSize; extra > 0 { // the exception is at the end
		_, c.traceback, _ = strings.Cut(c.traceback[extra:], "\n")
	}
	return c
}

// oneLine returns the first line of text, at most maxCause bytes of it.
func oneLine(text string) string {
	line, _, more := strings.Cut(strings.TrimRight(text, "\r\n"), "\n")
	if len(line) > maxCause {
		line, more = strings.ToValidUTF8(line[:maxCause], ""), true
	}
	if more {
		line += " ..."
	}
	return line
}
