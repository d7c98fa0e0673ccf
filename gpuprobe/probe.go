package gpuprobe

import (
	"bytes"
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

const (
	// toolLimit is how long one call of nvidia-smi may take.
	toolLimit = 10 * time.Second
	// probeLimit bounds a whole probe: six calls at most that each use up
	// their time, the look-up of user names, and a slow host's start.
	probeLimit = 75 * time.Second
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
// r.Run once and returns within 75 seconds, earlier if ctx ends. The error
// tells that the host could not be asked; what is wrong with its GPUs is in
// the Report.
func Probe(ctx context.Context, r Runner) (Report, error) {
	return probe(ctx, r, "", toolLimit)
}

// probe is Probe with the two things that tests change: the folder that
// stands for the host's / and the limit of one call.
func probe(ctx context.Context, r Runner, root string, limit time.Duration) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	mark := "plx-" + rand.Text()
	out := &transcript{limit: outputLimit, mark: []byte("\n" + mark + " done\n"), complete: func() { time.AfterFunc(endGrace, cancel) }}
	errs := &transcript{limit: stderrLimit}
	settings := fmt.Sprintf("mark=%s limit=%d root=%s\n", mark, int(limit/time.Second), quote(root))
	err := r.Run(ctx, settings+script, nil, out, errs)
	text, done := out.result()
	if !done {
		return Report{}, probeError(ctx, err, errs)
	}
	// An error after the last line is that of a run that was cut off.
	return read(parseSections(text, mark), limit), nil
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
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("probe: no answer within %v: %w", probeLimit, err)
	}
	return fmt.Errorf("probe: %w", err)
}

// transcript keeps the first limit bytes written to it. Once mark has been
// seen it calls complete. It may be read while a writer is still at work.
type transcript struct {
	limit    int    // most bytes that are kept
	mark     []byte // empty means that complete is never called
	complete func()

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
