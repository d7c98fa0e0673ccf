//go:build linux

package sampler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/protocol"
)

// Shell runs a script on the host. It returns at most limit bytes of the
// script's standard output, and its exit status. When ctx ends, Shell kills
// the script and waits for its end. That can take long if a device driver
// blocks the process.
type Shell func(ctx context.Context, script string, limit int64) (out []byte, status int, err error)

// gpus runs the host's GPU tool, such as nvidia-smi, to measure the use of the
// GPUs. It runs one call at a time and caches the newest result.
type gpus struct {
	shell Shell

	mu       sync.Mutex
	asking   chan struct{} // closed when the running call of the tool has ended; nil if none is running
	cancel   func()        // kills the running call of the tool
	disabled bool          // true if the tool must not be called again
	newest   answer
}

// answer is the result of one call of the GPU tool.
type answer struct {
	at   time.Time // when the call ended; zero if the tool was never called
	took time.Duration
	gpus []protocol.GPUUse // use of each GPU; the field Owner describes the processes that use it
	ids  []string          // UUIDs or PCI addresses of gpus, in the same order
	err  error
}

const (
	toolTime  = 10 * time.Second // how long a call of the tool may take in the background
	toolLimit = 1 << 20          // maximum number of bytes read from the tool's output
	share     = 100              // the tool runs for at most 1/share of the time
)

// errNoTool means that the host has neither nvidia-smi nor rocm-smi. Callers
// do not report it as an error.
var errNoTool = errors.New("the host has no nvidia-smi or rocm-smi")

// pause returns how long refresh waits after the result a before it calls the
// GPU tool again. A slow call is followed by a long pause, which limits the
// CPU time of the tool.
func (a answer) pause() time.Duration { return max(share*a.took, protocol.SampleEvery) }

// isRecent reports whether result a is recent enough to be shown as the present
// use of the GPUs.
func (a answer) isRecent(now time.Time) bool {
	return !a.at.IsZero() && now.Sub(a.at) < 3*a.pause()
}

// refresh starts a call of the GPU tool in the background, unless the newest
// result is still recent.
func (g *gpus) refresh(now time.Time) {
	g.mu.Lock()
	due := g.newest.at.IsZero() || now.Sub(g.newest.at) >= g.newest.pause()
	g.mu.Unlock()
	if due {
		g.begin(toolTime)
	}
}

// ask waits up to limit for the result of a call of the GPU tool. If no call
// is running, ask starts one.
func (g *gpus) ask(limit time.Duration) answer {
	select {
	case <-g.begin(limit):
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.newest
	case <-time.After(limit):
		return answer{err: late(limit)}
	}
}

func late(limit time.Duration) error {
	return fmt.Errorf("query the use of GPUs: no answer within %v", limit)
}

// begin starts a call of the GPU tool, unless one is running. The returned
// channel is closed when the call has ended.
func (g *gpus) begin(limit time.Duration) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking != nil {
		return g.asking
	}
	done := make(chan struct{})
	if g.disabled {
		close(done)
		return done
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, late(limit))
	g.asking, g.cancel = done, cancel
	go func() {
		defer close(done)
		defer cancel()
		began := time.Now()
		out, status, err := g.shell(ctx, gpuprobe.UseScript(), toolLimit)
		a := read(out, status, err)
		a.at = time.Now()
		a.took = a.at.Sub(began)
		g.mu.Lock()
		defer g.mu.Unlock()
		// If the first call fails and shows no GPU, later calls will fail too.
		// An example is a machine image with nvidia-smi on a host without a
		// GPU.
		g.disabled = g.disabled || status > 0 && len(a.gpus) == 0 && g.newest.at.IsZero()
		g.asking, g.newest = nil, a
	}()
	return done
}

// read parses the output of gpuprobe.UseScript, the script that runs the GPU
// tool.
func read(out []byte, status int, err error) (a answer) {
	all := gpuprobe.ParseUse(string(out))
	for _, u := range all[:min(len(all), protocol.MaxGPUs)] {
		a.ids = append(a.ids, u.ID())
		a.gpus = append(a.gpus, protocol.GPUUse{Index: u.Index, Name: u.Name, Percent: u.UtilizationPercent,
			MemoryUsed: mebibytes(u.MemoryUsedMiB), MemoryTotal: mebibytes(u.MemoryTotalMiB),
			Temperature: u.Temperature, Power: u.Power, Owner: described(u.Processes)})
	}
	switch {
	case err != nil:
		a.err = err
	case status == gpuprobe.NoTool:
		a.err = errNoTool
	case status != 0:
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		said := lines[0]
		if len(a.gpus) > 0 { // the tool printed some GPUs first, so its error message is the last line of the output
			said = lines[len(lines)-1]
		}
		a.err = fmt.Errorf("query the use of GPUs: %s", cmp.Or(said[:min(len(said), 200)], "exit status "+strconv.Itoa(status)))
	}
	return a
}

func mebibytes(n int) int64 {
	if n == gpuprobe.Unknown {
		return gpuprobe.Unknown
	}
	return int64(n) << 20
}

// described returns the user, command and pid of the first process on a GPU,
// and the number of further processes.
func described(all []gpuprobe.Process) string {
	if len(all) == 0 {
		return ""
	}
	text := "pid " + strconv.Itoa(all[0].PID)
	if all[0].Name != "" { // the name is unknown for a process in another pid namespace
		command, _, _ := strings.Cut(all[0].Name, " ")
		text = fmt.Sprintf("%s %s (%s)", userOf(all[0].PID), path.Base(command), text)
	}
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// userOf returns the login name of a process's user, or the numeric user id if
// it has no name.
func userOf(pid int) string {
	info, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return "unknown"
	}
	id := strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// known returns the GPUs of the newest result, or none if that result is too
// old. owners maps a GPU's UUID or PCI address to the task for which it is
// reserved; known sets Owner to that task.
func (g *gpus) known(now time.Time, owners map[string]string) (all []protocol.GPUUse, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	recent := g.newest.isRecent(now)
	if recent {
		for i, u := range g.newest.gpus {
			u.Owner = cmp.Or(owners[g.newest.ids[i]], u.Owner)
			all = append(all, u)
		}
	}
	if (recent || g.disabled) && g.newest.err != errNoTool {
		err = g.newest.err
	}
	return all, err
}

// busy returns the sum of the GPUs' utilizations in the newest result: 1.5
// means one GPU fully and one half used. It returns -1 if there is no recent
// result.
func (g *gpus) busy(now time.Time) (sum float32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.newest.gpus) == 0 || !g.newest.isRecent(now) {
		return -1
	}
	for _, u := range g.newest.gpus {
		sum += float32(max(0, u.Percent)) / 100
	}
	return sum
}

// close kills a running call of the GPU tool. It waits at most one second for
// the call to end, because a GPU driver may block the tool.
func (g *gpus) close() {
	g.mu.Lock()
	g.disabled = true
	asking, cancel := g.asking, g.cancel
	g.mu.Unlock()
	if asking == nil {
		return
	}
	cancel()
	select {
	case <-asking:
	case <-time.After(time.Second):
	}
}

// execute implements Shell with os/exec. A process that uses process.Children
// must not call it.
func execute(ctx context.Context, script string, limit int64) ([]byte, int, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	printed, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, 0, fmt.Errorf("start /bin/sh: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(printed, limit))
	printed.Close() // after this, a script that has printed more than limit bytes gets SIGPIPE
	_ = cmd.Wait()  // ignore the error: the exit status is read from cmd.ProcessState
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, cmd.ProcessState.ExitCode(), err
}
