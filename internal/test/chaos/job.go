package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// The hosts: the chief's, the other worker's, and one that has a server alone. The
// others have a server too.
var resources = []string{"h1: cpu", "h2: cpu", "h3: ps"}

// The same hosts if workers do not wait for each other: the job can do without the
// second, which has a worker and nothing else. The third has both.
var (
	looseResources = []string{"h1: cpu", "h2: cpu", "h3: cpu"}
	looseServers   = "h1,h3"
)

// lab is the hosts and the programs of a grid.
type lab struct {
	*settings
	results   *Results
	cluster   *testhosts.Cluster
	file      string // resource file of all hosts, for workers that wait for each other
	fewFile   string // resource file of the first two hosts, each with a worker
	looseFile string // resource file of all hosts, for workers that do not wait for each other
	dir       string // temporary folder, for the programs
	workload  string // path of the program that is trained
	digest    string // of the weights without a fault; "" before the first reference run
	started   []*job // every plx of the present cell, which may still run
	stderr    io.Writer
}

// openLab builds the programs and starts the hosts. The caller closes it.
func openLab(s *settings, r *Results, stderr io.Writer) (l *lab, err error) {
	l = &lab{settings: s, results: r, stderr: stderr}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.dir, err = os.MkdirTemp("", "plx-chaos-"); err != nil {
		return l, err
	}
	l.workload = filepath.Join(l.dir, "workload")
	if err := build(l.root, "./internal/test/chaos/workload", l.workload, "-tags=failpoint"); err != nil {
		return l, err
	}
	if l.plx == "" {
		l.plx = filepath.Join(l.dir, "plx")
		if err := build(l.root, ".", l.plx); err != nil {
			return l, err
		}
	}
	if l.logs != "" {
		if err := os.MkdirAll(l.logs, 0o755); err != nil {
			return l, err
		}
	}
	if l.cluster, err = testhosts.Open(testhosts.Options{Hosts: len(resources)}, testhosts.ReportTo(stderr)); err != nil {
		return l, err
	}
	l.file, l.looseFile, l.fewFile = l.cluster.ResourceFile(resources...), l.cluster.ResourceFile(looseResources...), l.cluster.ResourceFile(looseResources[:2]...)
	return l, nil
}

func build(root, pkg, program string, flags ...string) error {
	cmd := exec.Command("go", slices.Concat([]string{"build", "-trimpath", "-o", program}, flags, []string{pkg})...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return nil
}

// stopAll ends what was started and may still run.
func (l *lab) stopAll() {
	for _, j := range l.started {
		j.stop()
	}
	l.started = nil
}

func (l *lab) close() error {
	l.stopAll()
	var err error
	if l.cluster != nil {
		err = l.cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}

// launch returns the words of a launch; more stands before the program.
func (l *lab) launch(c Cell, name string, pace time.Duration, more ...string) []string {
	file, own := l.file, []string{"--arch", c.Arch, "--virtual-workers", "4", "--digest", "--partition-bytes", "8192", "--bucket-bytes", "8192"}
	if c.Victim.scaled() {
		file = l.fewFile
	}
	if c.loose() {
		more = append(more, "--freeze-timeout", "4s")
		if !c.Victim.scaled() {
			file, more = l.looseFile, append(more, "--ps", looseServers)
		}
		own = []string{"--arch", "ps", "--sync", syncs[c.Arch], "--partition-bytes", "2048", "--virtual-workers", fmt.Sprint(len(looseResources)), "--ledger", ledgers}
		if c.Arch == "backup" {
			own = append(own, "--quiet", "0")
		}
	}
	args := []string{"launch", "--color", "never", "--hosts", file, "--name", name, "--lease", lease.String(), "--grace", "2s",
		"--start-timeout", "60s", "--max-time", "3m", "--max-restarts", "3", "--min-workers", "1"}
	return slices.Concat(args, more, []string{l.workload}, own, []string{"--ckpt-dir", "kept",
		"--ckpt-every-steps", fmt.Sprint(checkpointEvery), "--steps", fmt.Sprint(steps), "--pace", pace.String()})
}

// ledgers is the folder in which workers note what they were told.
const ledgers = "ledger"

// job is a plx that was started.
type job struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when plx has ended and its output was read
}

// mark is a variable that tells what this program has started from what others have.
const mark = "FAULTGRID="

// start starts plx, with the clients' home and nothing of this process's that would
// steer it.
func (l *lab) start(script *transcript, args ...string) (*job, error) {
	cmd := exec.Command(l.plx, args...)
	cmd.Dir = l.dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "PLX_") || strings.HasPrefix(v, "OPENBLAS_") || strings.HasPrefix(v, "SSH_AUTH_SOCK=")
	}), "HOME="+l.cluster.Home, mark+l.dir)
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = in, in
	script.add("$ plx " + strings.Join(args, " "))
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	j := &job{cmd: cmd, ended: make(chan struct{})}
	var reading sync.WaitGroup
	reading.Go(func() { script.read(out) })
	l.started = append(l.started, j)
	go func() {
		defer close(j.ended)
		_ = cmd.Wait() // the state is read from cmd
		reading.Wait()
		_ = out.Close() // only read
		script.add(fmt.Sprintf("$ exit status %d", j.code()))
	}()
	return j, nil
}

// detached launches a job that needs no launcher, and follows it.
func (l *lab) detached(ctx context.Context, script *transcript, args []string) (*job, string, error) {
	j, err := l.start(script, args...)
	if err != nil {
		return nil, "", err
	}
	if code, err := j.wait(ctx); err != nil || code != 0 {
		return nil, "", fmt.Errorf("launch --detach: exit status %d: %w", code, err)
	}
	lines, _ := script.so()
	i := slices.IndexFunc(lines, func(l line) bool { return jobLine.MatchString(l.text) })
	if i < 0 {
		return nil, "", errors.New("launch --detach printed no job")
	}
	j, err = l.start(script, "attach", "--color", "never", lines[i].text)
	return j, lines[i].text, err
}

// wait returns the exit status.
func (j *job) wait(ctx context.Context) (int, error) {
	select {
	case <-j.ended:
		return j.code(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("plx has not ended: %w", context.Cause(ctx))
	}
}

func (j *job) code() int {
	if ws, ok := j.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return j.cmd.ProcessState.ExitCode()
}

// inState waits for the state of the launcher's process; 'X' means gone.
func (j *job) inState(ctx context.Context, state byte) error {
	path := fmt.Sprintf("/proc/%d/stat", j.cmd.Process.Pid)
	return until(ctx, fmt.Sprintf("plx in state %c", state), func() (bool, error) {
		is := byte('X')
		// The state follows the name, which is in parentheses.
		if stat, err := os.ReadFile(path); err == nil {
			if _, rest, found := strings.Cut(string(stat), ") "); found && rest != "" && rest[0] != 'Z' {
				is = rest[0]
			}
		}
		return is == state, nil
	})
}

// stop ends a plx that may still run.
func (j *job) stop() {
	_ = j.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
	_ = j.cmd.Process.Kill()                  // it may have ended
	<-j.ended
}

// launchersGone fails if a process that a launcher started is left on this machine.
func (l *lab) launchersGone() error {
	folders, err := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		environ, _ := os.ReadFile(folder + "/environ") // it may have ended
		if slices.Contains(strings.Split(string(environ), "\x00"), mark+l.dir) {
			command, _ := os.ReadFile(folder + "/cmdline") // it may have ended
			err = errors.Join(err, fmt.Errorf("a process of the launcher's is left: %s %q", filepath.Base(folder), command))
		}
	}
	return err
}

// openLog returns an empty transcript. With --logs its lines go to a file, too.
func (l *lab) openLog(name string) (*transcript, error) {
	if l.logs == "" {
		return newTranscript(nowhere{io.Discard}), nil
	}
	f, err := os.Create(filepath.Join(l.logs, strings.ReplaceAll(name, "/", "-")+".log"))
	return newTranscript(f), err
}

type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }
