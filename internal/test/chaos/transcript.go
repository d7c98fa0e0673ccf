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

// Patterns for the lines of plx and of the tasks that the tests read. If such
// a line changes, its pattern must change too.
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
	// If the line begins with a lost task, it ends with "without it". If it
	// begins with a lost host, it ends with a list of the lost workers.
	withoutLine = regexp.MustCompile(`^plx: (worker:\d+|host) .*; the job goes on without (.*)$`)
	taskName    = regexp.MustCompile(`worker:(\d+)`)
	// maps the beginning of each possible last line of plx scale to the exit
	// status that must go with it
	scaledWords = map[string]int{"scaled from ": 0, "not scaled": 125}
)

// line is one line of plx's output with its arrival time.
type line struct {
	at   time.Time // time at which the line arrived
	text string    // the line without its newline
}

// Transcript collects all output of plx for one cell, in order of arrival. It
// is safe for concurrent use.
type Transcript struct {
	mu      sync.Mutex
	lines   []line
	rest    []byte        // last line of the output, which is still incomplete
	changed chan struct{} // closed and replaced whenever output is added
}

// NewTranscript returns an empty transcript.
func NewTranscript() *Transcript { return &Transcript{changed: make(chan struct{})} }

// Write implements io.Writer: it adds output of plx.
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

// so returns the lines that have arrived so far, and a channel that is closed
// when more output arrives.
func (t *Transcript) so() ([]line, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines[:len(t.lines):len(t.lines)], t.changed
}

// String returns the lines that have arrived so far, each with its arrival
// time.
func (t *Transcript) String() string {
	var b strings.Builder
	lines, _ := t.so()
	for _, l := range lines {
		b.WriteString(l.at.Format("15:04:05.000 ") + l.text + "\n")
	}
	return b.String()
}

// Await waits until the function meant returns true for a line. It returns
// false if ended is closed or ctx ends first.
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

// stepOf returns the generation and the step in text, a line that the chief
// prints after a step. ok is false for any other line.
func stepOf(text string) (generation, step int, ok bool) {
	found := stepLine.FindStringSubmatch(text)
	if found == nil {
		return 0, 0, false
	}
	return number(found[1]), number(found[2]), true
}

// Reached returns a function for Await that reports whether a line reports the
// given step or a later one.
func Reached(step int) func(string) bool {
	return func(text string) bool {
		_, s, ok := stepOf(text)
		return ok && s >= step
	}
}

// Anew reports whether text is the line of a step in any generation after the
// first.
func Anew(text string) bool {
	generation, _, ok := stepOf(text)
	return ok && generation > 0
}

// Restarts reports whether text is the line with which plx announces a
// restart.
func Restarts(text string) bool { return restartLine.MatchString(text) }

// Saved reports whether text is plx's message that the checkpoint for scaling
// the job is written.
func Saved(text string) bool { return savedLine.MatchString(text) }

// Fired parses a line that a failpoint (package failpoint) prints. It returns
// the task in which the failpoint fired, and the name and action of the
// failpoint.
func Fired(text string) (task, what string, ok bool) {
	task, what, _ = strings.Cut(text, "failpoint ")
	return strings.Join(strings.Fields(strings.TrimRight(task, "! ")), " on "), what, firedLine.MatchString(text)
}

// Spooled returns the last step in text, the content of the chief's spool (the
// files that keep its output). It returns -1 if there is none.
func Spooled(text string) int {
	found := spoolLine.FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		return -1
	}
	return number(found[len(found)-1][1])
}

// own reports whether a line was printed by plx itself, not by a task.
func own(text string) bool { return strings.HasPrefix(text, "plx: ") }

// number parses digits. It returns -1 if the number does not fit into an int.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

// saying returns the first line at or after the time from that contains all
// words and for which meant returns true.
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

// Measures are the effects of a fault, read from a transcript.
type Measures struct {
	Noticed     float64 `json:"noticed"`     // seconds from the fault to the first line about a problem; -1 if there was none
	Back        float64 `json:"back"`        // seconds from the fault to the first step of the last generation, or to the next step if there was no new generation; -1 if there was no step
	Redone      int     `json:"redone"`      // number of steps computed a second time, by this job or by the next launch
	Generations int     `json:"generations"` // number of generations after the first
	Struck      int     `json:"struck"`      // last step before the fault; -1 if there was none
	Reached     int     `json:"reached"`     // last step of a job with outcome Ends; 0 for other jobs
	Resumed     int     `json:"resumed"`     // step after which the job, or the next launch, last resumed; -1 if it did not resume
	Unsaved     int     `json:"unsaved"`     // number of checkpoints that failed, as the last generation reports
	Digest      string  `json:"digest"`      // SHA-256 of all weights at the end; "" if none was printed
	Told        int     `json:"told"`        // lower bound of the number of recomputed steps, as plx reports it; -1 if plx reports none
}

// Measure returns the measures of a fault that happened at the given time.
func (t *Transcript) Measure(fault time.Time) Measures {
	lines, _ := t.so()
	return measure(lines, fault)
}

// measure returns the measures of a fault that happened at the given time.
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

// nextStep returns the seconds from the fault to the next step. The parameter
// noticed is the time in seconds from the fault to the first line about a
// problem; earlier steps do not count. The result is -1 if there is no such
// step.
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

// read updates the measures that one line contains, such as the digest.
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

// about reports whether a line is about a problem. Two kinds of lines do not
// count: the failpoint's own line, and the closing summary of a job whose
// checkpoints did not fail or were only late.
func about(text string) bool {
	return !firedLine.MatchString(text) && !strings.Contains(text, " 0 failed") && !strings.Contains(text, " not made at their steps") && troubled.MatchString(text)
}

// loss is what plx prints about a generation that resumes from a checkpoint.
type loss struct {
	behind int // step after which the generation resumes
	chief  int // lower bound of the number of steps that the chief recomputes
}

// lossOf parses plx's line about a generation that resumes.
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
