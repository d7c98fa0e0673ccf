package live

import (
	"bytes"
	"time"

	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/logs"
)

// stream is what a stream of a task has written since the last look at it.
type stream struct {
	task string
	text []byte    // the newest bytes, at most maxText
	next time.Time // when it is looked at again
}

// A task may write 100,000 lines a second. Of these the newest of each look count.
const (
	lookEvery = 50 * time.Millisecond
	maxLines  = 8        // at which a look looks
	maxText   = 16 << 10 // in bytes
)

// Chunk takes a part of a task's output.
func (l *Line) Chunk(host string, c logs.Chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.state.Last = now
	from := host + "/" + c.Source.String()
	s := l.streams[from]
	if s == nil {
		if len(l.streams) == maxTasks {
			return
		}
		s = &stream{task: c.Task}
		l.streams[from] = s
	}
	data := c.Data[max(0, len(c.Data)-maxText):]
	s.text = append(s.text[min(len(s.text), max(0, len(s.text)+len(data)-maxText)):], data...)
	if !now.Before(s.next) {
		s.next = now.Add(lookEvery)
		l.look(s, now)
	}
}

// look takes the values of the newest lines of a stream. It keeps what has no end yet.
func (l *Line) look(s *stream, now time.Time) {
	end := 1 + bytes.LastIndexAny(s.text, "\r\n")
	lines := s.text[:end]
	begin := len(lines)
	for range maxLines {
		begin = 1 + bytes.LastIndexAny(lines[:max(0, begin-1)], "\r\n")
		if begin == 0 {
			break
		}
	}
	for line := range bytes.FieldsFuncSeq(lines[begin:], func(r rune) bool { return r == '\n' || r == '\r' }) {
		l.report(s.task, metrics.Line(line, nil), now)
	}
	s.text = append(s.text[:0], s.text[end:]...)
}
