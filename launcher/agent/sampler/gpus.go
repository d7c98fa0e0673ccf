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

// Shell runs a script on the host, and returns what it has printed, at most limit bytes, and its exit status. At
// the end of ctx it kills the script. It waits for that, which a driver can delay.
type Shell func(ctx context.Context, script string, limit int64) (out []byte, status int, err error)

// gpus asks the tool of the host's GPUs, such as nvidia-smi, one call at a time, and keeps its newest answer.
type gpus struct {
	shell Shell

	mu     sync.Mutex
	asking chan struct{} // closed when the call under way has ended; nil: there is none
	cancel func()        // ends the call under way
	over   bool          // the tool is asked no more
	newest answer
}

// answer is what the tool says.
type answer struct {
	at   time.Time // zero: it was not asked
	took time.Duration
	gpus []protocol.GPUUse // Owner: processes
	ids  []string          // of gpus: UUIDs or bus addresses
	err  error
}

const (
	toolTime  = 10 * time.Second // that the tool may take if nobody waits for it
	toolLimit = 1 << 20          // bytes that it may print
	share     = 100              // the tool computes for one part of so many of the time
)

// errNoTool says that the host has no tool for GPUs, which is not a fault.
var errNoTool = errors.New("the host has no nvidia-smi or rocm-smi")

// pause is how long after an answer the tool can be asked again, so that its cost stays small.
func (a answer) pause() time.Duration { return max(share*a.took, protocol.SampleEvery) }

// holds reports whether the GPUs are as the answer says, as far as one knows.
func (a answer) holds(now time.Time) bool {
	return !a.at.IsZero() && now.Sub(a.at) < 3*a.pause()
}

// refresh has the tool asked in the background, if that did not happen lately.
func (g *gpus) refresh(now time.Time) {
	g.mu.Lock()
	due := g.newest.at.IsZero() || now.Sub(g.newest.at) >= g.newest.pause()
	g.mu.Unlock()
	if due {
		g.begin(toolTime)
	}
}

// ask returns an answer that is not older than this call.
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
	return fmt.Errorf("ask for the use of GPUs: no answer within %v", limit)
}

// begin asks the tool, unless it is just being asked. The channel is closed when it has answered.
func (g *gpus) begin(limit time.Duration) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking != nil {
		return g.asking
	}
	done := make(chan struct{})
	if g.over {
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
		// A tool that has failed from the start, as that of a machine image on a host without a GPU, always will.
		g.over = g.over || status > 0 && len(a.gpus) == 0 && g.newest.at.IsZero()
		g.asking, g.newest = nil, a
	}()
	return done
}

// read reads what UseScript has printed.
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
		if len(a.gpus) > 0 { // it has failed at a later one
			said = lines[len(lines)-1]
		}
		a.err = fmt.Errorf("ask for the use of GPUs: %s", cmp.Or(said[:min(len(said), 200)], "exit status "+strconv.Itoa(status)))
	}
	return a
}

func mebibytes(n int) int64 {
	if n == gpuprobe.Unknown {
		return gpuprobe.Unknown
	}
	return int64(n) << 20
}

// described names the first of the processes on a GPU.
func described(all []gpuprobe.Process) string {
	if len(all) == 0 {
		return ""
	}
	text := "pid " + strconv.Itoa(all[0].PID)
	if all[0].Name != "" { // a pid without a name is of another pid namespace
		command, _, _ := strings.Cut(all[0].Name, " ")
		text = fmt.Sprintf("%s %s (%s)", userOf(all[0].PID), path.Base(command), text)
	}
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// userOf returns the login name of a process's user, or the number.
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

// known returns the GPUs by the newest answer, with the owners that have booked them.
func (g *gpus) known(now time.Time, owners map[string]string) (all []protocol.GPUUse, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	holds := g.newest.holds(now)
	if holds {
		for i, u := range g.newest.gpus {
			u.Owner = cmp.Or(owners[g.newest.ids[i]], u.Owner)
			all = append(all, u)
		}
	}
	if (holds || g.over) && g.newest.err != errNoTool {
		err = g.newest.err
	}
	return all, err
}

// busy returns how many GPUs are busy by the newest answer; -1: that is not known.
func (g *gpus) busy(now time.Time) (sum float32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.newest.gpus) == 0 || !g.newest.holds(now) {
		return -1
	}
	for _, u := range g.newest.gpus {
		sum += float32(max(0, u.Percent)) / 100
	}
	return sum
}

// close ends a call under way, and waits for that for a moment: a driver may hold the tool.
func (g *gpus) close() {
	g.mu.Lock()
	g.over = true
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

// execute is the Shell of a process without process.Children.
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
	printed.Close() // a script that prints more gets SIGPIPE
	_ = cmd.Wait()  // ProcessState has the status
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, cmd.ProcessState.ExitCode(), err
}
