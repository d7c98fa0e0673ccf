package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// job is a plx that was started.
type job struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// mark is a variable that tells what this program has started from what others
// have.
const mark = "FAULTGRID="

// start starts plx, with the clients' home and nothing of this process's that
// would steer it.
func (b *bench) start(script *transcript, args ...string) (*job, error) {
	cmd := exec.Command(b.plx, args...)
	cmd.Dir = b.dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "PLX_") || strings.HasPrefix(v, "OPENBLAS_") || strings.HasPrefix(v, "SSH_AUTH_SOCK=")
	}), "HOME="+b.cluster.Home, mark+b.dir)
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
	b.started = append(b.started, j)
	go func() {
		defer close(j.ended)
		_ = cmd.Wait() // the state is read from cmd
		reading.Wait()
		_ = out.Close() // only read
		script.add(fmt.Sprintf("$ exit status %d", j.code()))
	}()
	return j, nil
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

// inState waits for the state of the launcher's process, 'X' being gone.
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
	_ = j.cmd.Process.Kill()                  // likewise
	<-j.ended
}

// launch are the words of a launch; more stands before the program.
func (b *bench) launch(c Cell, name string, pace time.Duration, more ...string) []string {
	file, own := b.file, []string{"--arch", c.Arch, "--virtual-workers", "4", "--digest", "--partition-bytes", "8192", "--bucket-bytes", "8192"}
	if c.Victim.scaled() {
		file = b.fewFile
	}
	if c.loose() {
		more = append(more, "--freeze-timeout", "4s")
		if !c.Victim.scaled() {
			file, more = b.looseFile, append(more, "--ps", looseServers)
		}
		own = []string{"--arch", "ps", "--sync", syncs[c.Arch], "--partition-bytes", "2048", "--virtual-workers", fmt.Sprint(len(looseResources)), "--ledger", ledgers}
		if c.Arch == "backup" {
			own = append(own, "--quiet", "0")
		}
	}
	args := []string{"launch", "--color", "never", "--hosts", file, "--name", name, "--lease", lease.String(), "--grace", "2s",
		"--start-timeout", "60s", "--max-time", "3m", "--max-restarts", "3", "--min-workers", "1"}
	return slices.Concat(args, more, []string{b.trainee}, own, []string{"--ckpt-dir", "kept",
		"--ckpt-every-steps", fmt.Sprint(checkpointEvery), "--steps", fmt.Sprint(steps), "--pace", pace.String()})
}

// ledgers is where workers note what they were told.
const ledgers = "ledger"

// detached launches a job that needs no launcher, and follows it.
func (b *bench) detached(ctx context.Context, script *transcript, args []string) (*job, string, error) {
	j, err := b.start(script, args...)
	if err != nil {
		return nil, "", err
	}
	code, err := j.wait(ctx)
	if err != nil || code != 0 {
		return nil, "", fmt.Errorf("launch --detach: exit status %d: %w", code, err)
	}
	lines, _ := script.so()
	for _, l := range lines {
		if jobLine.MatchString(l.text) {
			j, err = b.start(script, "attach", "--color", "never", l.text)
			return j, l.text, err
		}
	}
	return nil, "", errors.New("launch --detach printed no job")
}

var jobLine = regexp.MustCompile(`^grid-[a-z0-9-]+$`)

// left are the processes of this machine that a launcher has left.
func (b *bench) left() ([]string, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	var all []string
	for _, folder := range folders {
		environ, err := os.ReadFile(folder + "/environ")
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), mark+b.dir) {
			continue
		}
		command, _ := os.ReadFile(folder + "/cmdline") // it may have ended
		all = append(all, filepath.Base(folder)+" "+strings.ReplaceAll(string(command), "\x00", " "))
	}
	return all, err
}

// openLog is a file for what plx prints in a cell, where that is wanted.
func (b *bench) openLog(name string) (io.WriteCloser, error) {
	if b.logs == "" {
		return nowhere{io.Discard}, nil
	}
	return os.Create(filepath.Join(b.logs, strings.ReplaceAll(name, "/", "-")+".log"))
}

type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }
