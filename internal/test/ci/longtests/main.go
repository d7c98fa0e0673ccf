// Longtests runs the tests that are too long for make test: the fault grid, fuzzing,
// tests in files with the build tag long, and one point of a benchmark.
//
//	go run ./internal/test/ci/longtests                   # all parts
//	go run ./internal/test/ci/longtests -list
//	go run ./internal/test/ci/longtests -run '^e2e'       # parts by name
//
// It needs root. It writes a row for each part into build/test-long.md, the record that
// CONTRIBUTING.md shows, and all output into build/test-long.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	chosen := flag.String("run", "", "only parts whose names match a regular `expression`")
	list := flag.Bool("list", false, "print the parts and the time that each is expected to take")
	flag.Parse()
	match, err := regexp.Compile(*chosen)
	all, failed := parts(".")
	if err == nil {
		err = failed
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "longtests:", err)
		os.Exit(2)
	}
	all = slices.DeleteFunc(all, func(p part) bool { return !match.MatchString(p.name) })
	if *list {
		for _, p := range all {
			fmt.Printf("%-40s %v\n", p.name, p.expected)
		}
		return
	}
	begun := time.Now()
	record, err := newRecord("build/test-long.md")
	if err != nil {
		fmt.Fprintln(os.Stderr, "longtests:", err)
		os.Exit(2)
	}
	r := runner{run: execute, record: record}
	if n := r.all(ctx, all); n > 0 {
		fmt.Fprintf(os.Stderr, "longtests: %d of %d parts failed\n", n, r.done)
		stop()
		os.Exit(1)
	}
	fmt.Printf("longtests: %d of %d parts passed in %v\n", r.done, len(all), time.Since(begun).Round(time.Second))
}

// lanes is how many parts of the fault grid run at a time: their jobs mostly wait for
// leases to run out.
const lanes = 2

// runner runs parts one after the other, and neighbouring ones that are not alone in
// lanes.
type runner struct {
	run    func(context.Context, part) (repeated []string, err error)
	record func(row string)

	mu     sync.Mutex
	done   int // parts that ended
	failed int
}

// all runs the parts, and returns how many failed.
func (r *runner) all(ctx context.Context, all []part) int {
	var together sync.WaitGroup
	free := make(chan struct{}, lanes)
	for _, p := range all {
		if p.alone {
			together.Wait()
			r.one(ctx, p)
			continue
		}
		free <- struct{}{}
		together.Go(func() {
			r.one(ctx, p)
			<-free
		})
	}
	together.Wait()
	return r.failed
}

// one runs a part. A part that hangs is ended, long after a slow machine has done it.
func (r *runner) one(ctx context.Context, p part) {
	if ctx.Err() != nil {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 5*p.expected+10*time.Minute)
	defer cancel()
	repeated, err := r.run(ctx, p)
	took := time.Since(began).Seconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	said := "passed"
	if err != nil {
		said = "FAILED: " + err.Error()
		r.failed++
	}
	r.done++
	fmt.Printf("== %s: %s, %.0f s, expected %.0f\n", p.name, said, took, p.expected.Seconds())
	r.record(fmt.Sprintf("| %s | %s | %.0f | %s |", p.name, strings.SplitN(said, ":", 2)[0], took, cmp.Or(strings.Join(repeated, ", "), "nothing")))
}

// execute runs a part's commands, all of them even if one fails, and prints the output
// of those that fail. It returns the tests that passed when they were repeated. All output
// is in a file of the part's.
func execute(ctx context.Context, p part) (repeated []string, err error) {
	file, err := create(filepath.Join("build", "test-long", strings.NewReplacer("/", "-", " ", "-").Replace(p.name)+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for _, words := range p.commands {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "CI=true") // no test is skipped without a word
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = time.Minute
		var out bytes.Buffer
		cmd.Stdout = io.MultiWriter(&out, file)
		cmd.Stderr = cmd.Stdout
		failed := cmd.Run()
		for line := range strings.Lines(out.String()) {
			if name, found := strings.CutPrefix(line, "flaky: "); found {
				repeated = append(repeated, strings.TrimSpace(name))
			}
		}
		if failed != nil {
			fmt.Printf("== %s: %q\n%s\n", p.name, words, out.Bytes())
			err = errors.Join(err, fmt.Errorf("%q: %w", words, failed))
		}
	}
	return repeated, err
}

// newRecord begins a table at the end of a file, and returns what adds a row to it.
func newRecord(path string) (add func(row string), err error) {
	commit, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return nil, fmt.Errorf("ask git for the commit: %w", err)
	}
	file, err := create(path)
	if err != nil {
		return nil, err
	}
	add = func(row string) {
		_, _ = fmt.Fprintln(file, row) // the terminal has it too
	}
	add(fmt.Sprintf("\n%s, commit %s\n\n| part | result | seconds | repeated |\n|---|---|---|---|", time.Now().Format(time.DateOnly), strings.TrimSpace(string(commit))))
	return add, nil
}

// create opens a file to write at its end.
func create(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}
