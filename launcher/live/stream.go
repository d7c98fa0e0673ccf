package live

import (
	"bytes"
	"time"

	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/logs"
)

// stream is the state of one output stream (stdout or stderr) of a task.
type stream struct {
	task    string
	watcher *metrics.Watcher // finds metrics in the output and passes them to Line.report under l.mu
	time    time.Time        // when the host received the newest output
	tail    []byte           // last bytes of the output, at most maxShown
}

// Chunk records a piece of a task's output.
func (l *Line) Chunk(host string, c logs.Chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Last = time.Now()
	from := host + "/" + c.Source.String()
	s := l.streams[from]
	if s == nil {
		if len(l.streams) == maxTasks {
			return
		}
		s = &stream{task: c.Task, watcher: metrics.NewWatcher(l.patterns, func(at time.Time, found metrics.Sample) { l.report(c.Task, found, at) })}
		l.streams[from] = s
	}
	s.time = c.Time
	s.watcher.Add(c.Time, c.Data)
	data := c.Data[max(0, len(c.Data)-maxShown):]
	s.tail = append(s.tail[min(len(s.tail), max(0, len(s.tail)+len(data)-maxShown)):], data...)
}

// last returns the last non-empty line of the stream, or the end of that line
// if it is longer than tail.
func (s *stream) last() string {
	text := bytes.TrimRight(s.tail, "\r\n\t ")
	return string(text[1+bytes.LastIndexAny(text, "\r\n"):])
}
