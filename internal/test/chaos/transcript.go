package chaos

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

// What the tasks and plx print, as far as the grid reads it. Who changes such a line
// changes it here too.
var (
	stepLine   = regexp.MustCompile(`^worker:0 +\S+ +\| generation (\d+) \| step (\d+) \|`)
	spoolLine  = regexp.MustCompile(`(?m)^generation \d+ \| step (\d+) \|`)
	digestLine = regexp.MustCompile(`digest step=(\d+) sha256=([0-9a-f]{64})`)
	originLine = regexp.MustCompile(`(?:going on|resumes|resuming) after step (\d+), from checkpoint \d+-g(\d+)-`)
	failedSave = regexp.MustCompile(`\d+ checkpoints? of .* made, (\d+) failed`)
	firedLine  = regexp.MustCompile(`! failpoint [a-z.]+: [a-z]+$`)
	jobLine    = regexp.MustCompile(`^grid-[a-z0-9-]+$`)
	troubled   = regexp.MustCompile(`\b(lost|silent|ended|exited|failed|refused|reset|gone|heard|killed|broken|error|space|cut|frame|deadline|timeout|timed out|EOF|not)\b`)

	startLine   = regexp.MustCompile(`generation (\d+) starts on`)
	restartLine = regexp.MustCompile(`^plx: .*restarting in `)
	savedLine   = regexp.MustCompile(`^plx: scaling: saved after step \d+, generation (\d+) is ended`)
	resumeLine  = regexp.MustCompile(`^plx: generation (\d+) resumes after step (\d+)(?:; at least (\d+) steps? will be recomputed)?$`)
	// If plx names a lost task, "it" stands for that task, else the workers are named.
	withoutLine = regexp.MustCompile(`^plx: (worker:\d+|host) .*; the job goes on without (.*)$`)
	taskName    = regexp.MustCompile(`worker:(\d+)`)
	// What plx scale prints at its end, and the exit status that belongs to it.
	scaledWords = map[string]int{"scaled from ": 0, "not scaled": 125}
)

// line is what plx wrote, and when.
type line struct {
	at   time.Time // when the line arrived
	text string    // without its newline
}

// transcript is all that plx writes for one cell, in the order in which it comes.
// Its methods may be called from any goroutine.
type transcript struct {
	mu      sync.Mutex
	lines   []line
	changed chan struct{}  // closed and replaced when a line is added
	log     io.WriteCloser // takes each line too
}

func newTranscript(log io.WriteCloser) *transcript {
	return &transcript{changed: make(chan struct{}), log: log}
}

type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }

func (t *transcript) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := line{time.Now(), text}
	t.lines = append(t.lines, l)
	_, _ = io.WriteString(t.log, l.at.Format("15:04:05.000 ")+text+"\n") // the cell is worth more than its log
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
	_, _ = io.Copy(io.Discard, r) // after a line of a MiB: the writer must not be held up
}

// so returns what has come so far, and a channel that is closed when more comes.
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

// stepOf is the generation and the number of the step that a line reports.
func stepOf(text string) (generation, step int, ok bool) {
	found := stepLine.FindStringSubmatch(text)
	if found == nil {
		return 0, 0, false
	}
	return number(found[1]), number(found[2]), true
}

// reached returns whether a line reports a step, or a later one.
func reached(step int) func(string) bool {
	return func(text string) bool {
		_, s, ok := stepOf(text)
		return ok && s >= step
	}
}

// own reports whether a line is plx's own.
func own(text string) bool { return strings.HasPrefix(text, "plx: ") }

// number is what digits say, or -1 if no step, generation or worker has so many.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

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

// last are the last few lines, for an error.
func last(lines []line) string {
	var text []string
	for _, l := range lines[max(0, len(lines)-12):] {
		text = append(text, l.text)
	}
	return strings.Join(text, " / ")
}

// measures is what a transcript tells of a fault. Times are seconds after it; -1
// means never.
type measures struct {
	Noticed     float64 `json:"noticed"`     // seconds from the fault to the first line about trouble; -1: none came
	Back        float64 `json:"back"`        // seconds to the last generation's first step, or to the next step; -1: none
	Redone      int     `json:"redone"`      // number of steps computed again, by this job or by the next launch
	Generations int     `json:"generations"` // number of generations after the first
	Struck      int     `json:"struck"`      // last step before the fault; -1: none
	Reached     int     `json:"reached"`     // last step of a job that was to end; else 0
	Resumed     int     `json:"resumed"`     // step after which the job, or the next launch, last resumed; -1: none did
	Unsaved     int     `json:"unsaved"`     // number of checkpoints that failed, as the last generation reports
	Digest      string  `json:"digest"`      // of all weights at the end; "": none was printed
	Told        int     `json:"told"`        // number of recomputed steps that plx reports, a lower bound; -1: no report
}

// unmeasured is what is known without a transcript.
var unmeasured = measures{Noticed: -1, Back: -1, Struck: -1, Resumed: -1, Told: -1}

// measure reads what happened around a fault that came at a time.
func measure(lines []line, fault time.Time) measures {
	m := unmeasured
	generation, last := 0, -1
	for _, l := range lines {
		m.read(l.text)
		since := l.at.Sub(fault).Seconds()
		g, step, ok := stepOf(l.text)
		if !ok {
			if since >= 0 && m.Noticed < 0 && about(l.text) {
				m.Noticed = since
			}
			continue
		}
		if since < 0 {
			m.Struck = step
		}
		if g > generation {
			m.Redone += max(0, last+1-step)
			m.Generations += g - generation
			m.Back = since
		}
		generation, last = g, step
	}
	if m.Generations == 0 {
		m.Back = nextStep(lines, fault, m.Noticed)
	}
	return m
}

// nextStep is when the first step was made after a fault and, if somebody noticed
// it, after that.
func nextStep(lines []line, fault time.Time, noticed float64) float64 {
	for _, l := range lines {
		if since := l.at.Sub(fault).Seconds(); since >= max(0, noticed) {
			if _, _, ok := stepOf(l.text); ok {
				return since
			}
		}
	}
	return -1
}

// read takes what a line says once for the whole run.
func (m *measures) read(text string) {
	if found := digestLine.FindStringSubmatch(text); found != nil {
		m.Digest = found[2]
	}
	if found := failedSave.FindStringSubmatch(text); found != nil {
		m.Unsaved = number(found[1])
	}
	if found := originLine.FindStringSubmatch(text); found != nil {
		m.Resumed = number(found[1])
	}
	if _, told, ok := lossOf(text); ok {
		m.Told = max(m.Told, 0) + told.chief
	}
}

// resume takes what the launch after a job that ended at a step did.
func (m *measures) resume(reached int, next measures) {
	m.Reached, m.Resumed, m.Digest = reached, next.Resumed, next.Digest
	m.Redone = reached + 1 - next.Resumed
}

// about reports whether a line tells of trouble: it is neither the fault's own line
// nor one that counts no failures.
func about(text string) bool {
	return !firedLine.MatchString(text) && !strings.Contains(text, " 0 failed") && troubled.MatchString(text)
}

// loss is what plx says of a generation that resumes from a checkpoint.
type loss struct {
	behind int // step after which the generation resumes
	chief  int // least number of steps that the chief recomputes
}

// lossOf reads a line about a generation that resumes.
func lossOf(text string) (generation int, l loss, ok bool) {
	found := resumeLine.FindStringSubmatch(text)
	if found == nil {
		return 0, loss{}, false
	}
	if found[3] != "" {
		l.chief = number(found[3])
	}
	l.behind = number(found[2])
	return number(found[1]), l, true
}
