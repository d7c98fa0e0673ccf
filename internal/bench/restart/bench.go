package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/testhosts"
)

// patience bounds a measurement.
const patience = 2 * time.Minute

// bench has the hosts and the programs.
type bench struct {
	dir, plx, program, file string
	cluster                 *testhosts.Cluster
}

// open builds the programs and starts the hosts.
func (b *bench) open(root string) (err error) {
	if b.dir, err = os.MkdirTemp("", "plx-restart-"); err != nil {
		return err
	}
	b.plx, b.program = filepath.Join(b.dir, "plx"), filepath.Join(b.dir, "lm")
	for to, pkg := range map[string]string{b.plx: ".", b.program: "./examples/lm"} {
		cmd := exec.Command("go", "build", "-trimpath", "-o", to, pkg)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return errors.Join(fmt.Errorf("build %s: %w: %s", pkg, err, out), b.close())
		}
	}
	if b.cluster, err = testhosts.Open(testhosts.Options{Hosts: 3}, reporter{os.Stderr}); err != nil {
		return errors.Join(err, b.close())
	}
	b.file = b.cluster.ResourceFile()
	return nil
}

func (b *bench) close() (err error) {
	if b.cluster != nil {
		err = b.cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// reporter passes on what the hosts say.
type reporter struct{ io.Writer }

func (reporter) Helper() {}

func (r reporter) Errorf(format string, args ...any) { r.Logf(format, args...) }

func (r reporter) Logf(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// measure trains, kills a worker, and returns how long it took until training
// made a step again, as plx says.
func (b *bench) measure(ctx context.Context, name string, more []string) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done within %v", patience))
	defer cancel()
	args := []string{"launch", "--color", "never", "--hosts", b.file, "--name", name, "--max-restarts", "1", "--restart-backoff", "1ms", b.program}
	cmd := exec.CommandContext(ctx, b.plx, slices.Concat(args, model, more)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it stops the job
	cmd.WaitDelay = patience
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "PLX_") || strings.HasPrefix(v, "SSH_AUTH_SOCK=")
	}), "HOME="+b.cluster.Home)
	out, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	took, err := b.watch(bufio.NewScanner(out))
	cancel()
	_, _ = io.Copy(io.Discard, out) // it says that it was told to stop
	_ = cmd.Wait()                  // likewise
	return took, err
}

// watch reads what plx says, and kills a worker at the first checkpoint.
func (b *bench) watch(lines *bufio.Scanner) (time.Duration, error) {
	var struck time.Time
	var last string
	for lines.Scan() {
		last = lines.Text()
		switch {
		case struck.IsZero() && strings.Contains(last, "checkpoint of step "):
			if err := b.kill(); err != nil {
				return 0, err
			}
			struck = time.Now()
		case strings.HasPrefix(last, "plx: generation 1 goes on behind step "):
			return time.Since(struck), nil
		}
	}
	return 0, fmt.Errorf("plx has ended: %s", last)
}

// kill ends the worker of the second host.
func (b *bench) kill() error {
	all, err := b.cluster.Hosts[1].Processes()
	if err != nil {
		return err
	}
	for _, p := range all {
		if slices.Contains(p.Environ, "PLX_ROLE=worker") {
			return p.Signal(syscall.SIGKILL)
		}
	}
	return errors.New("host h2 has no worker")
}
