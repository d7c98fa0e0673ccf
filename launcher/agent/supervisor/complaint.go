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

// complaint is the reason for a failure that the program itself has written
// into its error file.
type complaint struct {
	cause     string // reason in one line; "" if the file contains none
	traceback string // Python traceback, at most tailSize bytes; "" if the file contains none
}

// blamesPeer reports whether the program failed because another task of the
// job failed. tail has the last lines of the program's stderr.
func blamesPeer(tail string) bool {
	return protocol.LossOfPeer(strings.Split(strings.TrimRight(tail, "\n"), "\n")) != ""
}

// lastLine returns the last line of the traceback, which names the exception.
func (c complaint) lastLine() string {
	text := strings.TrimRight(c.traceback, "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// tailSize is the maximum number of bytes of a task's stderr that an Exit
// message contains, counted from the end.
const tailSize = 4 << 10

// Size limits of an error file and of the reason in it, in bytes.
const (
	maxErrorFile = 1 << 20
	maxCause     = 400
)

// readComplaint reads a task's error file, whose path is in its environment
// variable TORCHELASTIC_ERROR_FILE. It returns an empty complaint if the file
// is missing, unreadable, larger than maxErrorFile, or no valid JSON.
func readComplaint(path string) complaint {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) // O_NONBLOCK: opening a FIFO must not block
	if err != nil {
		return complaint{}
	}
	defer f.Close() // the file was only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return complaint{}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxErrorFile))
	if err != nil {
		return complaint{}
	}
	return parseComplaint(text)
}

// frame matches the line of a Python traceback that names a source file.
var frame = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^ *File "([^"\n]+)", line (\d+), in (\S+)`) })

// blob matches the path of a program that plx has sent: its file name is a
// checksum.
var blob = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`/blobs/[0-9a-f]{64}$`) })

// parseComplaint parses the two formats that torch's @record decorator and
// similar programs write:
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
		if blob().MatchString(last[1]) { // the file's name is a checksum, which means nothing to the user: give only the line
			where = "line " + last[2]
		}
		c.cause += oneLine(fmt.Sprintf(" (%s, in %s)", where, last[3]))
	}
	if extra := len(c.traceback) - tailSize; extra > 0 { // keep the end, which names the exception
		_, c.traceback, _ = strings.Cut(c.traceback[extra:], "\n")
	}
	return c
}

// oneLine returns the first line of text, shortened to maxCause bytes.
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
