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

// Runner runs one POSIX shell script on a host. Run returns after the script
// has ended and its output is drained, or when ctx ends. Several goroutines
// may call it at the same time.
type Runner interface {
	Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error
}

// DefaultToolTime is the time limit for one call of nvidia-smi if
// Options.ToolTime is 0. Without persistence mode, each call initialises the
// NVIDIA driver, which takes up to 40 s on a machine with many GPUs.
const DefaultToolTime = time.Minute

// Options sets the time limits of a probe.
type Options struct {
	// ToolTime is the time limit for one call of a GPU tool such as
	// nvidia-smi, in whole seconds. 0 means DefaultToolTime.
	ToolTime time.Duration
	// Slow is called from another goroutine if the probe has not finished
	// SlowAfter (5 s) after its first call of nvidia-smi. It may be nil.
	Slow func()

	slowAfter time.Duration // replaces SlowAfter in tests; 0 means SlowAfter
}

// SlowAfter is the time after which a probe that waits for nvidia-smi is
// reported as slow, by calling Options.Slow.
const SlowAfter = 5 * time.Second

const (
	// otherTime is the part of a probe's time limit that is not for its six
	// calls of nvidia-smi. In this time the script starts on a slow host and
	// looks up user names.
	otherTime = 15 * time.Second
	// outputLimit is the maximum size of a host's output, in bytes. The output
	// for 16 GPUs with a few hundred processes each is about a tenth of
	// outputLimit.
	outputLimit = 1 << 20
	stderrLimit = 4 << 10
	// endGrace is how long Runner.Run may continue after the script has
	// printed its last line. Run only continues longer if a call of nvidia-smi
	// hangs and keeps the output open.
	endGrace = time.Second
)

//go:embed probe.sh
var script string

// Probe determines the GPUs, cores, memory and BLAS library of one host. It
// calls r.Run once. Its time limit is six times o.ToolTime plus 15 seconds, or
// the end of ctx if that is earlier. An error means that the script could not
// run. Problems with the GPUs are part of the Report.
func Probe(ctx context.Context, r Runner, o Options) (Report, error) {
	answer, err := ask(ctx, r, "", o)
	if err != nil {
		return Report{}, err
	}
	return answer.Report(), nil
}

// Output is the output of the probe script from one host. The output is not
// trusted, because the host may send anything; the method Report makes it safe
// to print.
type Output struct {
	Mark  string // random word that begins the lines by which the script separates sections
	Text  string
	Limit time.Duration // time limit of each call of nvidia-smi in the script
}

// Report parses the output into a Report.
func (a Output) Report() Report {
	return read(parseSections(a.Text[:min(len(a.Text), outputLimit)], a.Mark), a.Limit)
}

// ask runs the script. In tests, root is the folder that replaces / on the
// host; in other programs root is empty. If ask returns an error, the Output
// contains the text that the script printed before the error.
func ask(ctx context.Context, r Runner, root string, o Options) (Output, error) {
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
	answer := Output{mark, text, limit}
	if !done {
		return answer, probeError(ctx, err, errs)
	}
	// The script has printed its last line, so an error only means that the
	// run did not end within endGrace.
	return answer, nil
}

// Limit returns the time limit of a whole probe in which one call of
// nvidia-smi may take toolTime.
func Limit(toolTime time.Duration) time.Duration {
	return otherTime + 6*cmp.Or(toolTime, DefaultToolTime)
}

// probeError returns the reason why the script did not print its last line.
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
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // Run failed only because its deadline passed, so err says nothing more.
		err = context.Cause(ctx)
	}
	return fmt.Errorf("probe: %w", err)
}

// transcript is a Writer that stores the first limit bytes written to it. It
// calls started when the stored bytes first contain tool, and complete when
// they first contain mark. Its content may be read while another goroutine
// still writes.
type transcript struct {
	limit    int    // greatest number of bytes to store
	mark     []byte // text after which complete is called; if empty, complete is never called
	complete func()
	tool     []byte // text after which started is called; if empty, started is never called
	started  func()

	mu   sync.Mutex
	buf  bytes.Buffer
	done bool // true if the bytes stored so far contain mark
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

// quote returns s quoted as a single word for a POSIX shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
