package exec

import (
	"bytes"
	"io"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/logs"
)

// outputs returns where the command's two streams on a host go. With Config.Stream each
// line is printed at once, else the streams are kept until the end.
func (r *run) outputs(res *result, tell *console.Tally) (stdout, stderr io.Writer) {
	if r.live != nil {
		return &liveStream{to: r.live, host: res.host.Label(), stream: logs.Stdout}, &liveStream{to: r.live, host: res.host.Label(), stream: logs.Stderr}
	}
	newest := newestLine{tell: tell, host: res.host.Label()}
	return io.MultiWriter(&res.stdout, newest), io.MultiWriter(&res.stderr, newest)
}

// liveStream prints one stream of a host.
type liveStream struct {
	to     *logs.Printer
	host   string
	stream logs.Stream
	next   int64 // number of bytes so far
}

// anyTask is the name that all commands have for package logs. It is not shown.
const anyTask = "command"

// Write prints the lines that p completes. It hides a failed write, which logs.Printer
// keeps: the command goes on.
func (l *liveStream) Write(p []byte) (int, error) {
	_ = l.to.Chunk(l.host, logs.Chunk{Source: logs.Source{Task: anyTask, Stream: l.stream}, Offset: l.next, Data: p}) // as above
	l.next += int64(len(p))
	return len(p), nil
}

// newestLine shows the last line that a host has written while plx waits for the host.
type newestLine struct {
	tell *console.Tally
	host string
}

// longestNote is how much of a line is shown, in bytes.
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
