package live

import (
	"bytes"
	"time"

	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/logs"
)

// stream is a stream of a task.
type stream struct {
	task    string
	watcher *metrics.Watcher // reports to the Line, under its lock
	time    time.Time        // when the host received the newest bytes
	tail    []byte           // these, at most maxShown
}

// Chunk takes a part of a task's output.
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

// last returns the last line that is not empty, as far as tail has it.
func (s *stream) last() string {
	text := bytes.TrimRight(s.tail, "\r\n\t ")
	return string(text[1+bytes.LastIndexAny(text, "\r\n"):])
}
