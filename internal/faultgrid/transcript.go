package main

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// line is what plx wrote, and when.
type line struct {
	at   time.Time
	text string
}

// transcript is all that plx writes for one cell, in the order in which it
// comes. Its methods may be called from any goroutine.
type transcript struct {
	mu      sync.Mutex
	lines   []line
	changed chan struct{}
	log     io.Writer
}

func newTranscript(log io.Writer) *transcript {
	return &transcript{changed: make(chan struct{}), log: log}
}

func (t *transcript) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := line{time.Now(), text}
	t.lines = append(t.lines, l)
	_, _ = io.WriteString(t.log, l.at.Format("15:04:05.000 ")+text+"\n") // a log that cannot be written is no reason to stop
	close(t.changed)
	t.changed = make(chan struct{})
}

// read takes lines until r ends.
func (t *transcript) read(r io.Reader) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		t.add(scanner.Text())
	}
	_, _ = io.Copy(io.Discard, r) // behind a line of a MiB: whoever writes must not be held up
}

// so returns what has come so far, and a channel that is closed when there is
// more.
func (t *transcript) so() ([]line, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines[:len(t.lines):len(t.lines)], t.changed
}

// await waits for a line that is meant, until ended is closed or ctx ends.
func (t *transcript) await(ctx context.Context, ended <-chan struct{}, meant func(string) bool) bool {
	for seen := 0; ; {
		lines, more := t.so()
		for _, l := range lines[seen:] {
			if meant(l.text) {
				return true
			}
		}
		seen = len(lines)
		select {
		case <-more:
		case <-ended:
			if now, _ := t.so(); len(now) == seen {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// What the chief and plx write.
var (
	stepLine   = regexp.MustCompile(`^worker:0 +\S+ +\| generation (\d+) \| step (\d+) \|`)
	spoolLine  = regexp.MustCompile(`(?m)^generation \d+ \| step (\d+) \|`)
	digestLine = regexp.MustCompile(`digest step=(\d+) sha256=([0-9a-f]{64})`)
	resumeLine = regexp.MustCompile(`going on after step (\d+), from checkpoint`)
	savedLine  = regexp.MustCompile(`\d+ checkpoints? of .* made, (\d+) failed`)
	firedLine  = regexp.MustCompile(`! failpoint [a-z.]+: [a-z]+$`)
	troubled   = regexp.MustCompile(`\b(lost|silent|ended|exited|failed|refused|reset|gone|heard|killed|broken|error|space|cut|frame|deadline|timeout|timed out|EOF|not)\b`)
)

// stepOf is the generation and the number of the step that a line reports.
func stepOf(text string) (generation, step int, ok bool) {
	found := stepLine.FindStringSubmatch(text)
	if found == nil {
		return 0, 0, false
	}
	generation, err1 := strconv.Atoi(found[1])
	step, err2 := strconv.Atoi(found[2])
	return generation, step, err1 == nil && err2 == nil
}

// reached says that a line reports a step, or a later one.
func reached(step int) func(string) bool {
	return func(text string) bool {
		_, s, ok := stepOf(text)
		return ok && s >= step
	}
}

// own says that a line is the launcher's.
func own(text string) bool { return strings.HasPrefix(text, "plx: ") }

// saying finds a line that holds all words, among those from a time on that are
// meant.
func saying(lines []line, from time.Time, words []string, meant func(string) bool) (text string, found bool) {
	for _, l := range lines {
		if l.at.Before(from) || !meant(l.text) {
			continue
		}
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(l.text, w) }) {
			return l.text, true
		}
	}
	return "", false
}
