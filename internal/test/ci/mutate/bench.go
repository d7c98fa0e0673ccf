package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// bench runs a package's tests against its mutants.
type bench struct {
	options
	path   string // import path of the package
	dir    string
	files  []string
	suites []suite
	tmp    string
	limit  time.Duration // of one run; a mutant that takes longer is killed
	number int           // of mutants tried
}

// suite is a package whose tests run against each mutant.
type suite struct{ path, dir string }

// fate is what became of a mutant.
type fate int

const (
	broken   fate = iota // does not compile
	killed               // a test failed, or did not end
	survived             // no test noticed
)

// limitFor is for how long a mutant may run, by the time that the package takes without a
// change.
var limitFor = func(took time.Duration) time.Duration { return 10*time.Second + 4*took }

// newBench runs the tests once without a change. They must pass.
func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{options: o}
	all, err := list(ctx, o.pkg)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("list %s, which must be one package: there are %d", o.pkg, len(all))
	}
	b.path, b.dir, b.files = all[0].ImportPath, all[0].Dir, all[0].GoFiles
	if all, err = list(ctx, o.suites()...); err != nil {
		return nil, err
	}
	for _, p := range all {
		b.suites = append(b.suites, suite{p.ImportPath, p.Dir})
	}
	if b.tmp, err = os.MkdirTemp("", "mutate"); err != nil {
		return nil, err
	}
	b.limit = 10 * time.Minute
	began := time.Now()
	switch f, err := b.test(ctx); {
	case err != nil:
		b.close()
		return nil, err
	case f != survived:
		b.close()
		return nil, fmt.Errorf("the tests of %s do not pass without a change", b.path)
	}
	b.limit = limitFor(time.Since(began))
	return b, nil
}

// listed is a package as go list tells it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
}

func list(ctx context.Context, patterns ...string) (all []listed, err error) {
	text, err := exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,GoFiles"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", strings.Join(patterns, " "), withStderr(err))
	}
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("list %s: %w", strings.Join(patterns, " "), err)
		}
		all = append(all, p)
	}
	return all, nil
}

func (b *bench) close() { os.RemoveAll(b.tmp) } // what is left there is nothing of the tree

// mutants are all of the package.
func (b *bench) mutants() (all []mutant, err error) {
	for _, name := range b.files {
		path := filepath.Join(b.dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found, err := mutantsOf(path, text)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// shown is a mutant with its file as seen from here.
func (b *bench) shown(m mutant) mutant {
	here, err := os.Getwd()
	if err != nil {
		return m
	}
	if file, err := filepath.Rel(here, m.file); err == nil {
		m.file = file
	}
	return m
}

// try runs the tests against a mutant.
func (b *bench) try(ctx context.Context, m mutant) (fate, error) {
	b.number++
	changed := filepath.Join(b.tmp, fmt.Sprintf("%d.go", b.number))
	if err := os.WriteFile(changed, m.apply(), 0o600); err != nil {
		return broken, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {m.file: changed}})
	if err != nil {
		return broken, err
	}
	if err := os.WriteFile(b.overlay(), overlay, 0o600); err != nil {
		return broken, err
	}
	return b.test(ctx, "-overlay", b.overlay())
}

func (b *bench) overlay() string { return filepath.Join(b.tmp, "overlay.json") }

// test builds the tests and runs them, one package after the other.
func (b *bench) test(ctx context.Context, build ...string) (fate, error) {
	for _, s := range b.suites {
		if f, err := b.testIn(ctx, s, build...); f != survived || err != nil {
			return f, err
		}
	}
	return survived, nil
}

// testIn does so for one package.
func (b *bench) testIn(ctx context.Context, s suite, build ...string) (fate, error) {
	binary := filepath.Join(b.tmp, "tests")
	if err := os.Remove(binary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return broken, err
	}
	args := append([]string{"test", "-c", "-vet=off", "-o", binary}, build...)
	if out, err := exec.CommandContext(ctx, "go", append(args, s.path)...).CombinedOutput(); err != nil {
		if len(build) == 0 {
			return broken, fmt.Errorf("build the tests of %s: %w\n%s", s.path, err, out)
		}
		return broken, ctx.Err()
	}
	if _, err := os.Stat(binary); err != nil {
		return broken, fmt.Errorf("%s has no tests", s.path)
	}
	args = []string{"-test.failfast", "-test.timeout", b.limit.String()}
	if b.tests != "" {
		args = append(args, "-test.run", b.tests)
	}
	if b.short {
		args = append(args, "-test.short")
	}
	// A test that was stopped by its limit leaves its children behind: they end with
	// their process group.
	limited, cancel := context.WithTimeout(ctx, b.limit+10*time.Second)
	defer cancel()
	// Nor may a loop that does not end take all memory.
	cmd := exec.CommandContext(limited, "sh", append([]string{"-c", `ulimit -v 16000000; exec "$0" "$@"`, binary}, args...)...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // there may be nobody left
	}
	var status *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return broken, ctx.Err()
	case err == nil:
		return survived, nil
	case errors.As(err, &status), errors.Is(err, exec.ErrWaitDelay), limited.Err() != nil:
		return killed, nil
	}
	return broken, fmt.Errorf("run the tests of %s: %w", s.path, err)
}

// withStderr adds what a command said.
func withStderr(err error) error {
	var status *exec.ExitError
	if errors.As(err, &status) {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(status.Stderr))
	}
	return err
}
