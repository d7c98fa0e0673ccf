package gpuprobe

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Runner runs one POSIX shell script on a host and returns when it has ended
// and its output is drained, or when ctx ends. It may be called from many
// goroutines.
type Runner interface {
	Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error
}

// DefaultToolTime is how long one call of nvidia-smi may take unless Options say otherwise.
// Without persistence mode a call initialises the driver, which takes up to 40 s on a
// machine with many GPUs.
const DefaultToolTime = time.Minute

// Options tell how long to wait for nvidia-smi.
type Options struct {
	// ToolTime is how long one call may take, in whole seconds. 0: DefaultToolTime.
	ToolTime time.Duration
	// Slow is called, from another goroutine, if nvidia-smi has not answered all questions
	// after SlowAfter. Nil: nothing is called.
	Slow func()

	slowAfter time.Duration // 0: SlowAfter
}

// SlowAfter is how long nvidia-smi may take before it is called slow.
const SlowAfter = 5 * time.Second

const (
	// otherTime is how long a probe may take beside six calls of nvidia-smi that use up
	// their time: the look-up of user names, and a slow host's start.
	otherTime = 15 * time.Second
	// outputLimit bounds what a host may answer: some 16 GPUs with a few
	// hundred processes each take a tenth of it.
	outputLimit = 1 << 20
	stderrLimit = 4 << 10
	// endGrace is how long a run may take to end after its last line. Only
	// one that a stuck nvidia-smi holds open takes so long.
	endGrace = time.Second
)

//go:embed probe.sh
var script string

// Probe asks one host for its GPUs, cores, memory and BLAS library. It calls
// r.Run once. It returns within 15 seconds and six times o.ToolTime, earlier if ctx ends.
// The error tells that the host could not be asked; what is wrong with its GPUs is in the
// Report.
func Probe(ctx context.Context, r Runner, o Options) (Report, error) {
	answer, err := ask(ctx, r, "", o)
	if err != nil {
		return Report{}, err
	}
	return answer.Report(), nil
}

// Answer is what a host prints of its GPUs. It is to be believed no more than any output of a
// host: Report makes it harmless.
type Answer struct {
	Mark  string // begins the lines that are the script's own
	Text  string
	Limit time.Duration // that one call of nvidia-smi had
}

// Report reads the answer.
func (a Answer) Report() Report {
	return read(parseSections(a.Text[:min(len(a.Text), outputLimit)], a.Mark), a.Limit)
}

// ask runs the script. root is the folder that stands for the host's / in tests. After an error
// the Answer has what came before it.
func ask(ctx context.Context, r Runner, root string, o Options) (Answer, error) {
	limit := cmp.Or(o.ToolTime, DefaultToolTime)
	probeLimit := Limit(o.ToolTime)
	ctx, cancel := context.WithTimeoutCause(ctx, probeLimit, fmt.Errorf("no answer within %v", probeLimit))
	defer cancel()
	mark := "plx-" + rand.Text()
	out := &transcript{limit: outputLimit, mark: []byte("\n" + mark + " done\n"), complete: func() { time.AfterFunc(endGrace, cancel) }}
	if o.Slow != nil {
		out.tool = []byte("\n" + mark + " begin tool\n")
		out.started = func() {
			time.AfterFunc(cmp.Or(o.slowAfter, SlowAfter), func() {
				if _, done := out.result(); !done && ctx.Err() == nil {
					o.Slow()
				}
			})
		}
	}
	errs := &transcript{limit: stderrLimit}
	settings := fmt.Sprintf("mark=%s limit=%d root=%s\n", mark, int(limit/time.Second), quote(root))
	err := r.Run(ctx, settings+script, nil, out, errs)
	text, done := out.result()
	answer := Answer{mark, text, limit}
	if !done {
		return answer, probeError(ctx, err, errs)
	}
	// An error after the last line is that of a run that was cut off.
	return answer, nil
}

// Limit returns how long a probe may take in which one call of nvidia-smi may take so long.
func Limit(toolTime time.Duration) time.Duration {
	return otherTime + 6*cmp.Or(toolTime, DefaultToolTime)
}

// probeError says why the script did not reach its last line.
func probeError(ctx context.Context, err error, stderr *transcript) error {
	said, _ := stderr.result()
	words := clean(strings.Join(strings.Fields(said), " "))
	switch {
	case err == nil && words == "":
		err = errors.New("the host's shell ended early")
	case err == nil:
		err = fmt.Errorf("the host's shell ended early: %s", words)
	case words != "" && ctx.Err() == nil:
		err = fmt.Errorf("%w: %s", err, words)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // err is what that did to the script
		err = context.Cause(ctx)
	}
	return fmt.Errorf("probe: %w", err)
}

// transcript keeps the first limit bytes written to it. Once mark has been
// seen it calls complete, and before it, once tool has been seen, started. It may be read
// while a writer is still at work.
type transcript struct {
	limit    int    // most bytes that are kept
	mark     []byte // empty means that complete is never called
	complete func()
	tool     []byte // empty means that started is never called
	started  func()

	mu   sync.Mutex
	buf  bytes.Buffer
	done bool // mark was seen
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return len(p), nil
	}
	start := max(0, t.buf.Len()-len(t.mark))
	t.buf.Write(p[:min(len(p), t.limit-t.buf.Len())])
	if len(t.tool) > 0 && bytes.Contains(t.buf.Bytes(), t.tool) {
		t.tool = nil
		t.started()
	}
	if len(t.mark) > 0 && bytes.Contains(t.buf.Bytes()[start:], t.mark) {
		t.done = true
		t.complete()
	}
	return len(p), nil
}

func (t *transcript) result() (text string, done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String(), t.done
}

// quote makes one word of s for a POSIX shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
