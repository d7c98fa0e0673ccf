package exec

import (
	"bytes"
	"io"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/logs"
)

// outputs returns the writers for the command's stdout and stderr on one host.
// If Config.Stream is set, the writers print each line when it arrives. If
// not, they keep the output until the end.
func (r *run) outputs(res *result, tell *console.HostProgress) (stdout, stderr io.Writer) {
	if r.live != nil {
		return &liveStream{to: r.live, host: res.host.Label(), stream: logs.Stdout}, &liveStream{to: r.live, host: res.host.Label(), stream: logs.Stderr}
	}
	newest := newestLine{tell: tell, host: res.host.Label()}
	return io.MultiWriter(&res.stdout, newest), io.MultiWriter(&res.stderr, newest)
}

// liveStream prints one stream (stdout or stderr) of the command on one host,
// line by line.
type liveStream struct {
	to     *logs.Printer
	host   string
	stream logs.Stream
	next   int64 // number of bytes written so far, which is the offset of the next byte
}

// anyTask is the task name that package logs requires. It is never shown,
// because a command has no tasks.
const anyTask = "command"

// Write prints the lines that p completes. It never returns an error, because
// the command must continue. logs.Printer.Close returns the first failed
// write.
func (l *liveStream) Write(p []byte) (int, error) {
	// Ignore the error: Close of this Printer returns it.
	_ = l.to.Chunk(l.host, logs.Chunk{Source: logs.Source{Task: anyTask, Stream: l.stream}, Offset: l.next, Data: p})
	l.next += int64(len(p))
	return len(p), nil
}

// newestLine is a writer that shows the last line of a host's output in the
// progress display.
type newestLine struct {
	tell *console.HostProgress
	host string
}

// longestNote is the maximum number of bytes of a line that newestLine shows.
const longestNote = 200

func (n newestLine) Write(p []byte) (int, error) {
	text := bytes.TrimRight(p, "\r\n")
	text = text[1+max(bytes.LastIndexByte(text, '\n'), bytes.LastIndexByte(text, '\r')):]
	if len(bytes.TrimSpace(text)) > 0 {
		text = text[:min(len(text), longestNote)]
		n.tell.Note(n.host, string(logs.Safe(bytes.ToValidUTF8(text, nil), false)))
	}
	return len(p), nil
}
