package chaos

import (
	"bytes"
	"context"
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
	failedSave = regexp.MustCompile(`made \d+ checkpoints? \(.*\), (\d+) failed`)
	firedLine  = regexp.MustCompile(`! failpoint [a-z.]+: [a-z]+$`)
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

// Transcript is all that plx writes for one cell, in the order in which it comes. Its
// methods may be called from any goroutine.
type Transcript struct {
	mu      sync.Mutex
	lines   []line
	rest    []byte        // of a line that has not ended
	changed chan struct{} // closed and replaced when something is added
}

// NewTranscript returns an empty one.
func NewTranscript() *Transcript { return &Transcript{changed: make(chan struct{})} }

// Write adds what plx has written.
func (t *Transcript) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest = append(t.rest, text...)
	for now := time.Now(); ; {
		whole, rest, ended := bytes.Cut(t.rest, []byte("\n"))
		if !ended {
			break
		}
		t.lines, t.rest = append(t.lines, line{now, string(whole)}), rest
	}
	close(t.changed)
	t.changed = make(chan struct{})
	return len(text), nil
}

// so returns what has come so far, and a channel that is closed when more comes.
func (t *Transcript) so() ([]line, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines[:len(t.lines):len(t.lines)], t.changed
}

// String is what has come so far, with the times.
func (t *Transcript) String() string {
	var b strings.Builder
	lines, _ := t.so()
	for _, l := range lines {
		b.WriteString(l.at.Format("15:04:05.000 ") + l.text + "\n")
	}
	return b.String()
}

// Await waits for a line that is meant, until ended is closed or ctx ends.
func (t *Transcript) Await(ctx context.Context, ended <-chan struct{}, meant func(text string) bool) bool {
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

// Reached returns whether a line reports a step, or a later one.
func Reached(step int) func(string) bool {
	return func(text string) bool {
		_, s, ok := stepOf(text)
		return ok && s >= step
	}
}

// Anew reports whether a line reports a step of another generation than the first.
func Anew(text string) bool {
	generation, _, ok := stepOf(text)
	return ok && generation > 0
}

// Restarts reports whether plx says that it has decided to restart.
func Restarts(text string) bool { return restartLine.MatchString(text) }

// Saved reports whether plx says that it made a checkpoint to go on with other hosts.
func Saved(text string) bool { return savedLine.MatchString(text) }

// Fired tells of a line in which task a failpoint did what.
func Fired(text string) (task, what string, ok bool) {
	task, what, _ = strings.Cut(text, "failpoint ")
	return strings.Join(strings.Fields(strings.TrimRight(task, "! ")), " on "), what, firedLine.MatchString(text)
}

// Spooled is the last step in what the chief has printed to its spool; -1 if there is none.
func Spooled(text string) int {
	found := spoolLine.FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		return -1
	}
	return number(found[len(found)-1][1])
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

// Measures is what a transcript tells of a fault. Times are seconds after it; -1
// means never.
type Measures struct {
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

// Measure reads what happened around a fault that came at a time.
func (t *Transcript) Measure(fault time.Time) Measures {
	lines, _ := t.so()
	return measure(lines, fault)
}

// measure reads what happened around a fault that came at a time.
func measure(lines []line, fault time.Time) Measures {
	m := Measures{Noticed: -1, Back: -1, Struck: -1, Resumed: -1, Told: -1}
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
func (m *Measures) read(text string) {
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

// about reports whether a line tells of trouble: it is neither the fault's own line
// nor one that counts, at the end, checkpoints of which none failed or some were late.
func about(text string) bool {
	return !firedLine.MatchString(text) && !strings.Contains(text, " 0 failed") && !strings.Contains(text, " not made at their steps") && troubled.MatchString(text)
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
